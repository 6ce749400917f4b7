"""The covered source files of a snapshot, each read and parsed once, and edits of them."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from tadpole.pilot.candidate import Site
from tadpole.pilot.code import Code, Function, parse
from tadpole.pilot.trial import Rules
from tadpole.repos.snapshot import CoveredFunction, Snapshot
from tadpole.task import FileChange, Recipe


@lru_cache(maxsize=32)
def sources_of(snapshot: Snapshot) -> "Sources":
    """The sources of a snapshot, read once: proposers look at those of a round by turns."""
    return Sources(snapshot)


class Sources:
    """What proposers read. ``paths`` are those files of the library that its tests run."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.paths = [path for path in snapshot.baseline.files if path.endswith(".py")]
        self._codes: dict[str, Code | None] = {}

    def code(self, path: str) -> Code | None:
        """A file with its tree; None where it is no Python."""
        if path not in self._codes:
            try:
                content = (self.snapshot.tree / path).read_bytes()
                self._codes[path] = Code.decode(path, content)
            except (ValueError, OSError):
                self._codes[path] = None
        return self._codes[path]

    def covered(self, path: str) -> Mapping[int, tuple[str, ...]]:
        """Lines that stable tests execute, each with these tests."""
        return self.snapshot.baseline.lines(path)

    @cached_property
    def functions(self) -> dict[tuple[str, str], tuple[Function, CoveredFunction]]:
        """Covered functions by file and name; names that a file defines twice are left out."""
        found: dict[tuple[str, str], tuple[Function, CoveredFunction]] = {}
        for path in self.paths:
            code = self.code(path)
            if code is None:
                continue
            mine: dict[str, list[Function]] = defaultdict(list)
            for function in code.functions:
                mine[function.name].append(function)
            for covered in self.snapshot.baseline.functions(path):
                if len(mine[covered.name]) == 1:
                    found[path, covered.name] = (mine[covered.name][0], covered)
        return found

    @cached_property
    def most_failing(self) -> int:
        """More failing tests than this are too many for a task."""
        rules = Rules()
        share = int(rules.most_failing_share * len(self.snapshot.baseline.stable))
        return max(1, min(rules.most_failing, share))

    def site(self, code: Code, start: int, end: int, new: str, lines: Iterable[int]) -> Site:
        """The site that puts ``new`` in place of the characters ``start:end``."""
        reached = self.covered(code.path)
        return Site(
            path=code.path,
            offset=start,
            old=code.text[start:end],
            new=new,
            line=code.line_of(start),
            lines=tuple(sorted(line for line in set(lines) if line in reached)),
        )

    def changes(self, sites: Iterable[Site]) -> tuple[FileChange, ...] | None:
        """The files with these sites edited.

        None where sites overlap, a result is no Python, or means the same as the pristine file.
        """
        groups: dict[str, list[Site]] = defaultdict(list)
        for site in sites:
            groups[site.path].append(site)
        found = []
        for path in sorted(groups):
            code = self.code(path)
            text = None if code is None else spliced(code.text, groups[path])
            if code is None or text is None:
                return None
            try:
                tree = parse(text)
            except ValueError:
                return None
            if ast.dump(tree) == code.dump:
                return None
            executable = bool((self.snapshot.tree / path).stat().st_mode & 0o100)
            found.append(FileChange(path, code.encode(text), executable))
        return tuple(found)


def spliced(text: str, sites: Iterable[Site]) -> str | None:
    """A pristine text with all these sites edited; None where two of them overlap."""
    last = len(text) + 1
    for site in sorted(sites, key=lambda site: (site.offset, site.end), reverse=True):
        if site.end > last or (site.end == last and not site.old):
            return None
        text = text[: site.offset] + site.new + text[site.end :]
        last = site.offset
    return text


def is_library(path: str, recipe: Recipe) -> bool:
    """Whether a path is a Python file of the packages under test, and no test itself."""
    tests = (*recipe.test_paths, "conftest.py")
    if not path.endswith(".py") or any(_below(path, test) for test in tests):
        return False
    parts = path.split("/")
    if "tests" in parts or parts[-1] == "conftest.py" or parts[-1].startswith("test_"):
        return False
    roots = [root.removesuffix("/") for root in recipe.import_paths]
    places = [
        name if root == "." else f"{root}/{name}" for root in roots for name in recipe.packages
    ]
    return any(path == f"{place}.py" or _below(path, place) for place in places)


def _below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.removesuffix("/") + "/")
