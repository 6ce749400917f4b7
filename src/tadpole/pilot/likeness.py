"""Which tasks are nearly the same, by content.

The measure: a repair restores lines (of a repair that only deletes, the deleted ones count). Two
tasks are *alike* where these lines, white space aside and each with its repository and edited
functions, have at least half of their union in common. Names, seeds, operators, versions of a
repository, line numbers and statements say nothing here: `<` made `<=` and `<` made `>` in the
same place are alike, since the same line repairs both.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from tadpole.pilot.candidate import Candidate
from tadpole.task import Task

ALIKE = 0.5  # share of the union

Lines = frozenset[str]


def lines_of(task: Task) -> Lines:
    """What stands for a task."""
    start = {change.path: change.content for change in task.start}
    made = task.provenance
    place = _place(task.source.location, made.edited_files, made.edited_functions)
    changed = [(start.get(change.path), change.content) for change in task.gold]
    return _lines(place, changed)


def lines_of_candidate(candidate: Candidate, repository: str, tree: Path) -> Lines:
    """What stands for the task that a candidate will be; ``tree`` is the pristine one."""
    changed = []
    for change in candidate.changes:
        pristine = tree / change.path
        changed.append((change.content, pristine.read_bytes() if pristine.is_file() else None))
    return _lines(_place(repository, candidate.files, candidate.functions), changed)


class Likeness:
    """What is there already, by content."""

    def __init__(self) -> None:
        self._known: list[Lines] = []
        self._with: dict[str, list[int]] = {}  # line -> those that have it

    def add(self, lines: Lines) -> None:
        """One more is there."""
        for line in lines:
            self._with.setdefault(line, []).append(len(self._known))
        self._known.append(lines)

    def has_like(self, lines: Lines) -> bool:
        """Whether one is there that is alike."""
        near = {number for line in lines for number in self._with.get(line, ())}
        return any(alike(lines, self._known[number]) for number in near)


def alike(one: Lines, other: Lines) -> bool:
    """Whether two have half of their union in common."""
    return bool(one & other) and len(one & other) >= ALIKE * len(one | other)


def _place(repository: str, files: Sequence[str], functions: Sequence[str]) -> str:
    return f"{repository} {' '.join(sorted(functions) or sorted(files))}"


def _lines(place: str, changed: Iterable[tuple[bytes | None, bytes | None]]) -> Lines:
    restored: set[str] = set()
    deleted: set[str] = set()
    for start, gold in changed:
        came, went = _changed(_split(start), _split(gold))
        restored |= came
        deleted |= went
    return frozenset(f"{place}: {line}" for line in restored or deleted)


def _changed(start: Sequence[str], gold: Sequence[str]) -> tuple[set[str], set[str]]:
    """The lines that came and those that went."""
    first = 0
    while first < min(len(start), len(gold)) and start[first] == gold[first]:
        first += 1
    last = 0
    while last < min(len(start), len(gold)) - first and start[-1 - last] == gold[-1 - last]:
        last += 1
    old, new = start[first : len(start) - last], gold[first : len(gold) - last]
    came: set[str] = set()
    went: set[str] = set()
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            went.update(old[a:b])
            came.update(new[c:d])
    return came - {""}, went - {""}


def _split(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "replace")
    return [" ".join(line.split()) for line in text.splitlines()]
