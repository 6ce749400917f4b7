"""A candidate that somebody wrote: statement, solution and tests, before anything was run.

A mutation has its tests in the repository already. Here a model (or a person) hands over all
three parts, so nothing of it is believed: :mod:`tadpole.pilot.proof` runs it.
"""

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.code import Code
from tadpole.task import FileChange, Recipe, TaskKind

_TEST_NAMES = ("test_*.py", "*_test.py", "tests.py")
_TEST_PLACES = frozenset({"tests", "test"})


@dataclass(frozen=True, kw_only=True)
class Written(Candidate):
    """``changes`` lead from the pristine tree to the start (none but for a bug that was put in).

    ``gold`` leads from the start to the solved tree, ``tests`` are whole test files. Any of them
    may be empty or wrong: that is found out.
    """

    kind: TaskKind
    statement: str
    gold: tuple[FileChange, ...]
    tests: tuple[FileChange, ...]
    author: str  # who wrote it: a model's fingerprint

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the solution edits, sorted; where it has none, those of the tests."""
        return tuple(sorted({c.path for c in self.gold or self.tests or self.changes})) or (".",)

    @cached_property
    def key(self) -> str:
        """Names everything that was written, in 16 hex digits."""
        digest = hashlib.sha256(f"written 1 {self.kind.value} {self.statement}".encode())
        for part in (self.changes, self.gold, self.tests):
            for change in sorted(part, key=lambda change: change.path):
                body = b"-" if change.content is None else hashlib.sha256(change.content).digest()
                digest.update(b"\1" + change.path.encode() + b"\0" + body)
            digest.update(b"\2")
        return digest.hexdigest()[:16]


def is_test(path: str, recipe: Recipe) -> bool:
    """Whether a path is one of a test: where the recipe's tests lie, or named like one.

    A place that the recipe names counts only where it is no source directory: "." is none.
    """
    pure = PurePosixPath(path)
    if any(pure.match(name) for name in _TEST_NAMES) or _TEST_PLACES.intersection(pure.parts[:-1]):
        return True
    places = {place.strip("/") for place in recipe.test_paths} - {"", ".", *recipe.packages}
    return any(path == place or path.startswith(f"{place}/") for place in places)


def edited_functions(
    start: Mapping[str, bytes | None], solved: Mapping[str, bytes | None]
) -> tuple[str, ...]:
    """Functions and methods that differ between two states of some files, "<module>" where the
    difference lies outside of all."""
    found: dict[str, None] = {}
    for path in sorted(solved):
        before, after = _dumps(path, start.get(path)), _dumps(path, solved[path])
        names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
        found.update(dict.fromkeys(names))
        if not names:
            found["<module>"] = None
    return tuple(found)


def _dumps(path: str, content: bytes | None) -> dict[str, str]:
    try:
        code = Code.decode(path, content or b"")
    except ValueError:
        return {}
    return {function.name: ast.dump(function.node) for function in code.functions}
