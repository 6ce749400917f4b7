"""The migration proposer: code that uses names which the running Python no longer has.

All places of a few functions of one file go back to what was right once (``dict.iteritems``,
``xrange``, ``inspect.getargspec``): the task is to move them to what took its place.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code, Function
from tadpole.pilot.operators.registry import expressions
from tadpole.pilot.sources import Sources, sources_of
from tadpole.repos.snapshot import Snapshot
from tadpole.task import TaskKind

OPERATOR = "old_python"
METHODS = {
    "items": "iteritems",
    "keys": "iterkeys",
    "values": "itervalues",
    "is_alive": "isAlive",
    "tobytes": "tostring",
}
BUILTINS = {"range": "xrange", "chr": "unichr", "input": "raw_input"}
ATTRIBUTES = {
    "__code__": "func_code",
    "__defaults__": "func_defaults",
    "__func__": "im_func",
    "__closure__": "func_closure",
}
MODULES = {
    ("base64", "decodebytes"): "decodestring",
    ("base64", "encodebytes"): "encodestring",
    ("inspect", "getfullargspec"): "getargspec",
    ("itertools", "filterfalse"): "ifilterfalse",
    ("itertools", "zip_longest"): "izip_longest",
    ("math", "gcd"): "fractions.gcd",
    ("os", "getcwd"): "getcwdu",
    ("string", "ascii_letters"): "letters",
    ("string", "ascii_lowercase"): "lowercase",
    ("string", "ascii_uppercase"): "uppercase",
    ("sys", "maxsize"): "maxint",
    ("time", "perf_counter"): "clock",
    ("time", "process_time"): "clock",
}


@dataclass(frozen=True)
class Migration:
    """Implements :class:`tadpole.protocols.Proposer`. Each function is part of at most one."""

    fewest: int = 2  # places
    most: int = 6
    name: str = "migration"

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """File by file: functions are added until there are places enough."""
        sources = sources_of(snapshot)
        paths = list(sources.paths)
        rng.shuffle(paths)
        groups = {path: self._groups(sources, path, rng) for path in paths}
        while groups:
            for path in list(groups):
                candidate = next(groups[path], None)
                if candidate is None:
                    del groups[path]
                else:
                    yield candidate

    def _groups(self, sources: Sources, path: str, rng: random.Random) -> Iterator[Candidate]:
        names = sorted(name for name in sources.functions if name[0] == path)
        rng.shuffle(names)
        sites: list[Site] = []
        functions: list[str] = []
        tests: set[str] = set()
        for name in names:
            function, covered = sources.functions[name]
            code = sources.code(path)
            assert code is not None
            found = [site for site in _outdated(sources, code, function) if site.lines]
            together = tests.union(covered.tests)
            if (
                not found
                or len(sites) + len(found) > self.most
                or len(together) > sources.most_failing
            ):
                continue
            sites += found
            functions.append(name[1])
            tests = together
            if len(sites) >= self.fewest:
                candidate = self._candidate(sources, path, sites, functions, rng.getrandbits(32))
                if candidate is not None:
                    yield candidate
                sites, functions, tests = [], [], set()

    def _candidate(
        self, sources: Sources, path: str, sites: list[Site], functions: list[str], seed: int
    ) -> Candidate | None:
        changes = sources.changes(sites)
        if changes is None:
            return None
        return Candidate(
            proposer=self.name,
            operator=OPERATOR,
            changes=changes,
            functions=tuple(functions),
            sites=tuple(sites),
            seed=seed,
            kind=TaskKind.MIGRATION,
            request=(
                f"Parts of the module `{path}` were written for an old Python and use names that "
                "the Python of today no longer has. Move them to what took the place of these "
                "names. What the code does stays the same."
            ),
        )


def _outdated(sources: Sources, code: Code, function: Function) -> Iterator[Site]:
    """Every place of a function that can be written the old way."""
    bound = {
        node.id if isinstance(node, ast.Name) else node.arg
        for node in ast.walk(code.tree)
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        or isinstance(node, ast.arg)
    }
    for node in expressions(function):
        edit = None
        if isinstance(node, ast.Attribute):
            edit = _attribute(code, node)
        elif isinstance(node, ast.Call):
            edit = _call(code, node, bound)
        if edit is not None:
            start, end, new = edit
            yield sources.site(code, start, end, new, (code.line_of(start),))


def _attribute(code: Code, node: ast.Attribute) -> tuple[int, int, str] | None:
    start, end = code.span(node)
    if isinstance(node.value, ast.Name):
        new = MODULES.get((node.value.id, node.attr), "")
        if "." in new:
            return start, end, new
        if new:
            return end - len(node.attr), end, new
    if node.attr in ATTRIBUTES and isinstance(node.ctx, ast.Load):
        return end - len(node.attr), end, ATTRIBUTES[node.attr]
    return None


def _call(code: Code, node: ast.Call, bound: set[str]) -> tuple[int, int, str] | None:
    end = code.span(node.func)[1]
    if isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        new = METHODS.get(node.func.attr)
        return None if new is None else (end - len(node.func.attr), end, new)
    if isinstance(node.func, ast.Name) and node.func.id in BUILTINS.keys() - bound:
        return end - len(node.func.id), end, BUILTINS[node.func.id]
    return None
