"""The single-site proposer: one operator, one place, in code that the tests execute.

It spreads its proposals: file by file, function by function (at most ``per_function`` each),
and over operators in proportion to what they are worth (``by_worth``) or evenly. The same
snapshot and generator give the same candidates in the same order.
"""

import ast
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code, Function, one_line, parse
from tadpole.pilot.dictation import dictate
from tadpole.pilot.operators import OPERATORS, Operator, Splice
from tadpole.repos.snapshot import Snapshot
from tadpole.task import FileChange

SKIPPED = {"__repr__"}  # what they break is hardly ever behaviour


class Style(StrEnum):
    """Which edits are proposed."""

    ANY = "any"
    LINE = "line"  # edits inside one line only: they can be dictated in few words


@dataclass
class _Place:
    """A function with its possible splices by operator, and how often it was proposed."""

    code: Code
    function: Function
    executable: bool
    splices: dict[str, list[tuple[Splice, tuple[int, ...]]]] = field(default_factory=dict)
    used: int = 0


@dataclass(frozen=True)
class SingleSite:
    """Implements :class:`tadpole.protocols.Proposer`.

    ``max_dictated`` bounds the characters of the old and of the new text in which the repair
    can be dictated, and then leaves out texts that need escaping; 0 for no bound.
    """

    style: Style = Style.ANY
    per_function: int = 2
    max_dictated: int = 0
    by_worth: bool = False
    operators: Mapping[str, Operator] = field(default_factory=lambda: OPERATORS)
    name: str = "single-site"

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """Candidates over the covered functions of a snapshot, each change once."""
        files = [path for path in snapshot.baseline.files if path.endswith(".py")]
        rng.shuffle(files)
        places = {path: self._places(snapshot, path) for path in files}
        for found in places.values():
            rng.shuffle(found)
        uses: Counter[str] = Counter()
        seen: set[str] = set()
        while any(places.values()):
            for path in files:
                candidate = self._next(places[path], uses, rng)
                if candidate is not None and candidate.key not in seen:
                    seen.add(candidate.key)
                    yield candidate

    def _places(self, snapshot: Snapshot, path: str) -> list[_Place]:
        file = snapshot.tree / path
        try:
            code = Code.decode(path, file.read_bytes())
        except ValueError:
            return []  # not Python: nothing is proposed there
        executable = bool(file.stat().st_mode & 0o100)
        covered = set(snapshot.baseline.lines(path))
        found = []
        for function in code.functions:
            if function.name.rpartition(".")[2] in SKIPPED:
                continue
            place = _Place(code, function, executable)
            for name in sorted(self.operators):
                for splice in self._allowed(self.operators[name], code, function):
                    lines = tuple(line for line in reach(code, function, splice) if line in covered)
                    if lines:
                        place.splices.setdefault(name, []).append((splice, lines))
            if place.splices:
                found.append(place)
        return found

    def _allowed(self, operator: Operator, code: Code, function: Function) -> Iterator[Splice]:
        for splice in operator.find(code, function):
            old = code.text[splice.start : splice.end]
            if self.style is Style.ANY or (operator.inline and one_line(old + splice.text)):
                yield splice

    def _next(
        self, places: list[_Place], uses: Counter[str], rng: random.Random
    ) -> Candidate | None:
        """One more candidate of a file; places that have nothing left are taken out."""
        while places:
            places.sort(key=lambda place: place.used)  # stable: keeps the shuffled order
            place = places[0]
            if place.used >= self.per_function or not place.splices:
                places.pop(0)
                continue
            name = min(sorted(place.splices), key=lambda name: self._turn(name, uses))
            options = place.splices[name]
            splice, lines = options.pop(rng.randrange(len(options)))
            if not options:
                del place.splices[name]
            candidate = self._candidate(place, name, splice, lines, rng.getrandbits(32))
            if candidate is not None:
                uses[name] += 1
                place.used += 1
                return candidate
        return None

    def _turn(self, name: str, uses: Counter[str]) -> float:
        """When an operator is due: the smaller the sooner."""
        return (uses[name] + 1) / self.operators[name].worth if self.by_worth else uses[name]

    def _candidate(
        self, place: _Place, operator: str, splice: Splice, lines: tuple[int, ...], seed: int
    ) -> Candidate | None:
        code = place.code
        text = code.text[: splice.start] + splice.text + code.text[splice.end :]
        try:
            tree = parse(text)
        except ValueError:
            return None
        if ast.dump(tree) == code.dump:
            return None  # the same program: nothing changed
        site = Site(
            path=code.path,
            offset=splice.start,
            old=code.text[splice.start : splice.end],
            new=splice.text,
            line=code.line_of(splice.start),
            lines=lines,
        )
        if self.max_dictated:
            dictated = dictate(code, site)
            if dictated is None or not dictated.plain or dictated.longest > self.max_dictated:
                return None
        change = FileChange(code.path, code.encode(text), place.executable)
        return Candidate(self.name, operator, (change,), (place.function.name,), (site,), seed)


def reach(code: Code, function: Function, splice: Splice) -> range:
    """The lines of the innermost statement around a splice: they run where the edit runs.

    Of a compound statement only the header counts, unless the splice takes in its body.
    """
    first, last = code.line_of(splice.start), code.line_of(max(splice.start, splice.end - 1))
    best: ast.stmt | None = None
    for top in function.body:
        for node in ast.walk(top):
            if isinstance(node, ast.stmt) and node.lineno <= first:
                end = node.end_lineno or node.lineno
                if end >= last and (best is None or node.lineno >= best.lineno):
                    best = node
    if best is None:
        return range(first, last + 1)
    body = getattr(best, "body", None)
    end = best.end_lineno or best.lineno
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        end = max(best.lineno, body[0].lineno - 1)
    return range(min(best.lineno, first), max(end, last) + 1)
