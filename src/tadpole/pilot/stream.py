"""The candidates of one source on their way to tasks: what was written down, what is judged ahead.

Which source gives the next candidate depends only on what was written down so far, so that
several candidates may be judged at a time, in any order and at any speed, without a trace of
that in the result.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.likeness import Lines
from tadpole.pilot.verdict import DropReason
from tadpole.repos.snapshot import Snapshot
from tadpole.task import Task


@dataclass(frozen=True)
class Judged:
    """What validation said: a task or a reason."""

    task: Task | None
    reason: DropReason | None
    seconds: float


@dataclass
class Ahead:
    """A candidate that was taken from its stream, and its judgement where that has begun."""

    candidate: Candidate
    judging: asyncio.Task[Judged] | None = None
    lines: Lines | None = None  # what stands for it, once that was asked


@dataclass
class Stream:
    """One source on its way."""

    source: str
    snapshot: Snapshot
    name: str
    candidates: Iterator[Candidate]
    index: int = 0  # candidates written down
    kept: list[Task] = field(default_factory=list)
    ahead: deque[Ahead] = field(default_factory=deque)
    ended: bool = False

    @property
    def dry(self) -> bool:
        """Nothing more will come."""
        self.look(1)
        return not self.ahead

    def look(self, number: int) -> None:
        """Take candidates until ``number`` of them are ahead, or none is left."""
        while not self.ended and len(self.ahead) < number:
            candidate = next(self.candidates, None)
            if candidate is None:
                self.ended = True
            else:
                self.ahead.append(Ahead(candidate))

    def pop(self) -> Ahead | None:
        """The next candidate, now written down; None where there is none."""
        self.look(1)
        if not self.ahead:
            return None
        self.index += 1
        return self.ahead.popleft()

    @property
    def repository(self) -> str:
        """Where it comes from, whatever its version."""
        return self.snapshot.source.location


def wanting(streams: Sequence[Stream], count: int) -> list[Stream]:
    """Those that owe something yet: each its even share, and what dry ones cannot give."""
    if sum(len(stream.kept) for stream in streams) >= count:
        return []
    flowing = [stream for stream in streams if not stream.dry]
    given = sum(len(stream.kept) for stream in streams if stream.dry)
    even, rest = divmod(count - given, max(1, len(flowing)))
    return [s for number, s in enumerate(flowing) if len(s.kept) < even + (number < rest)]


def next_up(streams: Sequence[Stream], number: int) -> list[tuple[Stream, int]]:
    """The next ``number`` candidates, (stream, place ahead): the least tried source first.

    Only the first is certain: the others hold if nothing becomes of those before them.
    """
    places: list[tuple[int, int, Stream, int]] = []
    for order, stream in enumerate(streams):
        stream.look(number)
        places += [
            (stream.index + at, order, stream, at) for at in range(min(number, len(stream.ahead)))
        ]
    places.sort(key=lambda place: place[:2])
    return [(stream, at) for _, _, stream, at in places[:number]]
