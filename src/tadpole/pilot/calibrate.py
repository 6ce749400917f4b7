"""Calibration: which tasks does the current policy sometimes solve, and under which statement?

Each task starts at some rung of its hint ladder and is attempted N times. Where it is always
solved the next statement tells less, where it is never solved it tells more, until its pass
rate lies in the band or the moves are used up. Only the words change, never code or tests.

Attempts that infrastructure broke count neither for nor against: they are made again, and what
is still missing after that is missing from N.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tadpole.outcome import OUTCOME_POLICY, Outcome
from tadpole.progress import Bar, Progress
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.together import together
from tadpole.trace import Attempt, Record
from tadpole.tries import tried

TABLE = "calibration"  # every attempt, one row each
VERDICTS = "calibrated"  # one row per task and rung that was measured
BAND = (0.0, 1.0)


@dataclass(frozen=True)
class Calibrated:
    """A task at the rung where the policy sometimes solves it."""

    task: Task
    passes: int
    valid: int  # trusted attempts

    @property
    def rate(self) -> float:
        """Share of the trusted attempts that solved it."""
        return self.passes / self.valid if self.valid else 0.0


class Measured(Record):
    """One step of a task's walk on its ladder."""

    format: Literal[1] = 1
    task: str
    name: str
    rung: int
    passes: int
    valid: int
    kept: bool


async def calibrate(
    tasks: Sequence[Task],
    *,
    attempt: Callable[[Task, int], Awaitable[Attempt]],
    samples: int,
    rundir: RunDir,
    progress: Progress,
    band: tuple[float, float] = BAND,
    start_rung: int | None = None,
    max_moves: int = 3,
    concurrency: int = 4,
    policy: str | None = None,
) -> list[Calibrated]:
    """Measure the tasks by real attempts and return those inside the band, in their order.

    ``band`` are the lowest and highest pass rate that is kept; 0 and 1 never are, because
    nothing can be learned from them. ``start_rung`` is the rung where each walk starts (None:
    the task's own), cut to those that the task has. Attempts that ``rundir`` already holds (of
    ``policy``, where given) are not made again.
    """
    known = {
        (row.task, row.sample): row
        for row in rundir.rows(TABLE, Attempt)
        if policy in (None, row.policy) and OUTCOME_POLICY[row.outcome].trust
    }
    with progress.task("calibrate", total=len(tasks)) as bar:
        walk = _Walk(attempt, samples, band, rundir, bar, known, asyncio.Semaphore(concurrency))
        starts = [task.rung if start_rung is None else start_rung for task in tasks]
        found: list[Calibrated | None] = [None] * len(tasks)

        async def one(number: int) -> None:
            found[number] = await walk.along(tasks[number], starts[number], max_moves)

        await together([one(number) for number in range(len(tasks))])
    return [one for one in found if one is not None]


@dataclass
class _Walk:
    attempt: Callable[[Task, int], Awaitable[Attempt]]
    samples: int
    band: tuple[float, float]
    rundir: RunDir
    bar: Bar
    known: dict[tuple[str, int], Attempt]
    free: asyncio.Semaphore

    async def along(self, task: Task, start: int, max_moves: int) -> Calibrated | None:
        """Move a task on its ladder; None where it is never inside the band."""
        rungs = sorted(hint.rung for hint in task.hints)
        at = max((i for i, rung in enumerate(rungs) if rung <= start), default=0)
        seen: set[int] = set()
        while 0 <= at < len(rungs) and at not in seen and len(seen) <= max_moves:
            seen.add(at)
            measured = await self._measure(task.at_rung(rungs[at]))
            kept = bool(measured.valid) and self._inside(measured.rate)
            self._note(measured, kept)
            if kept:
                self.bar.advance(note=f"{task.name}: {measured.passes}/{measured.valid}")
                return measured
            if not measured.valid:
                break  # could not tell: it is owed to another calibration
            at += -1 if measured.rate >= max(self.band) else 1
        self.bar.advance(note=f"{task.name}: not learnable yet")
        return None

    def _inside(self, rate: float) -> bool:
        return 0 < rate < 1 and self.band[0] <= rate <= self.band[1]

    def _note(self, measured: Calibrated, kept: bool) -> None:
        row = Measured(
            task=measured.task.id,
            name=measured.task.name,
            rung=measured.task.rung,
            passes=measured.passes,
            valid=measured.valid,
            kept=kept,
        )
        if row not in self.rundir.rows(VERDICTS, Measured):
            self.rundir.append(VERDICTS, row)

    async def _measure(self, task: Task) -> Calibrated:
        rows: list[Attempt] = []

        async def one(sample: int) -> None:
            row = await self._sample(task, sample)
            if OUTCOME_POLICY[row.outcome].trust:
                rows.append(row)

        await together([one(sample) for sample in range(self.samples)])
        passes = sum(row.outcome is Outcome.RESOLVED for row in rows)
        return Calibrated(task, passes, len(rows))

    async def _sample(self, task: Task, sample: int) -> Attempt:
        known = self.known.get((task.id, sample))
        if known is not None:
            return known
        async with self.free:
            return await tried(partial(self.attempt, task, sample), self.rundir, TABLE)
