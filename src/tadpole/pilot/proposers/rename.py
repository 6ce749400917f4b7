"""The rename proposer: a routine under its old name everywhere in the library.

The behaviour is all there, so what is asked for is a refactoring; tests that use the new name
fail until it is done, all others stay green. Only names that mean one thing are taken: one
definition, no other binding, no string or keyword of that name, no class from elsewhere that
might call it, and no test that imports it by name (its file could not even be collected).
"""

import ast
import random
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tadpole.pilot.callgraph import Name
from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code
from tadpole.pilot.hide import locate
from tadpole.pilot.sources import Sources, is_library, sources_of
from tadpole.repos.snapshot import Snapshot
from tadpole.task import TaskKind

OPERATOR = "old_name"
SHORTEST = 5
_COMMON = {
    name
    for kind in (str, bytes, list, dict, set, tuple, int, float, complex, type, object)
    for name in dir(kind)
}


@dataclass(frozen=True)
class Rename:
    """Implements :class:`tadpole.protocols.Proposer`. Each routine is proposed once."""

    name: str = "rename"

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """Every routine whose name means one thing, in random order."""
        sources, library = sources_of(snapshot), _Library(snapshot)
        names = sorted(sources.functions)
        rng.shuffle(names)
        for name in names:
            tests = sources.functions[name][1].tests
            if len(tests) <= sources.most_failing and library.is_plain(name, tests):
                candidate = self._candidate(sources, library, name, rng.getrandbits(32))
                if candidate is not None:
                    yield candidate

    def _candidate(
        self, sources: Sources, library: "_Library", name: Name, seed: int
    ) -> Candidate | None:
        path, full = name
        owner, _, new = full.rpartition(".")
        old = _old_name(new)
        if old in library.words:
            return None
        sites = list(library.sites(sources, name, old))
        changes = sources.changes(sites)
        if changes is None:
            return None
        what = f"method `{old}` of the class `{owner}`" if owner else f"function `{old}`"
        return Candidate(
            proposer=self.name,
            operator=OPERATOR,
            changes=changes,
            functions=(full,),
            sites=tuple(sites),
            seed=seed,
            kind=TaskKind.REFACTOR,
            request=(
                f"The {what} in the module `{path}` is to be called `{new}`: rename it there and "
                "wherever the library uses it. What it does stays the same, and the old name goes."
            ),
        )


def _old_name(name: str) -> str:
    """``add_item`` was ``addItem``; one word was ``do_word``."""
    words = name.strip("_").split("_")
    if len(words) == 1:
        return f"do_{name}"
    return words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


class _Library:
    """All files of a library, and what its names are bound to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.codes: dict[str, Code] = {}
        for file in sorted(snapshot.tree.rglob("*.py")):
            path = file.relative_to(snapshot.tree).as_posix()
            if is_library(path, snapshot.recipe):
                try:
                    self.codes[path] = Code.decode(path, file.read_bytes())
                except ValueError:
                    continue

    @cached_property
    def words(self) -> set[str]:
        """Every word of every file, comments and strings included."""
        return {w for code in self.codes.values() for w in re.findall(r"\w+", code.text)}

    @cached_property
    def _odd(self) -> set[str]:
        """Names that are bound to more than one definition, or meant by a text or a keyword."""
        defined: set[str] = set()
        odd: set[str] = set(_COMMON)
        for code in self.codes.values():
            for node in ast.walk(code.tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    odd.update({node.name} & defined)
                    defined.add(node.name)
                elif isinstance(node, ast.Name | ast.Attribute):
                    if not isinstance(node.ctx, ast.Load):
                        odd.add(node.id if isinstance(node, ast.Name) else node.attr)
                elif isinstance(node, ast.arg | ast.keyword):
                    odd.add(node.arg or "")
                elif isinstance(node, ast.alias):
                    odd.update({node.asname or "", *node.name.split(".")[:-1]})
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    odd.add(node.value)
                elif isinstance(node, ast.JoinedStr):  # no positions inside it before 3.12
                    inner = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
                    odd.update(n.id if isinstance(n, ast.Name) else n.attr for n in inner)
        return odd

    @cached_property
    def _own_classes(self) -> dict[str, ast.ClassDef]:
        return {
            node.name: node
            for code in self.codes.values()
            for node in ast.walk(code.tree)
            if isinstance(node, ast.ClassDef)
        }

    def is_plain(self, name: Name, tests: tuple[str, ...]) -> bool:
        """Whether a routine can be renamed by its name alone, and tests would see it."""
        owner, _, leaf = name[1].rpartition(".")
        if len(leaf) < SHORTEST or leaf.startswith("_") or leaf in self._odd:
            return False
        if owner and not self._all_ours(owner.rpartition(".")[2]):
            return False
        texts = [self._tests[path] for path in {locate(i)[0] for i in tests} if path in self._tests]
        imported = re.compile(rf"import[^\n=]*\b{leaf}\b|^\s+{leaf},?$", re.MULTILINE)
        used = re.compile(rf"\.{leaf}\b")
        return any(used.search(text) for text in texts) and not any(
            imported.search(text) for text in self._tests.values()
        )

    def _all_ours(self, name: str) -> bool:
        """Whether a class and all that it inherits from is defined here."""
        node = self._own_classes.get(name)
        if node is None or node.keywords:
            return False
        return all(
            isinstance(base, ast.Name)
            and base.id != name
            and (base.id == "object" or self._all_ours(base.id))
            for base in node.bases
        )

    @cached_property
    def _tests(self) -> dict[str, str]:
        paths = {locate(node_id)[0] for node_id in self.snapshot.baseline.stable}
        return {
            path: (self.snapshot.tree / path).read_text("utf-8", "replace")
            for path in sorted(paths)
            if path.endswith(".py")
        }

    def sites(self, sources: Sources, name: Name, old: str) -> Iterator[Site]:
        """Every place where the name stands in code."""
        path, full = name
        leaf = full.rpartition(".")[2]
        function, covered = sources.functions[name]
        for code in self.codes.values():
            for token in code.tokens:
                if token.kind == tokenize.NAME and token.text == leaf:
                    line = code.line_of(token.start)
                    head = code.path == path and line == function.node.lineno
                    lines = covered.lines if head else (line,)
                    yield sources.site(code, token.start, token.end, old, lines)
