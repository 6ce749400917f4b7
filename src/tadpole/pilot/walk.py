"""The walk of a task on its hint ladder, measured by real attempts.

Attempts are made until the verdict is fixed (:mod:`tadpole.pilot.decision`). Where a task is
solved too often the next statement tells less, where too rarely it tells more, never back.

Tasks are measured several at a time and taken in their order, and every attempt has its own
random stream: timing changes neither the verdicts, nor which tasks a budget leaves out, nor a
byte of the table of verdicts.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from tadpole.errors import UsageError
from tadpole.outcome import OUTCOME_POLICY, Outcome
from tadpole.pilot.decision import Rule, Verdict
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.together import end, together
from tadpole.trace import Attempt, Record
from tadpole.tries import tried

TABLE = "calibration"  # every attempt, one row each
VERDICTS = "calibrated"  # one row per task and rung that was measured

MakeAttempt = Callable[[Task, int], Awaitable[Attempt]]


@dataclass(frozen=True)
class Calibrated:
    """A task at a rung, and k of N attempts at it."""

    task: Task
    passes: int
    valid: int  # trusted attempts

    @property
    def rate(self) -> float:
        """Share of the trusted attempts that solved it."""
        return self.passes / self.valid if self.valid else 0.0


class Measured(Record):
    """One step of a walk: k of N attempts of one policy in one harness, and the rule."""

    format: Literal[1] = 1
    task: str
    name: str
    rung: int
    passes: int
    valid: int
    kept: bool
    verdict: Verdict | None = None  # None: not recorded
    policy: str = ""
    harness: str = ""
    samples: int = 0  # N of the rule
    low: float = 0.0
    high: float = 1.0
    probe: int = 0


@dataclass
class Walk:
    """The steps that a task has taken."""

    task: Task
    steps: list[tuple[Calibrated, Verdict]] = field(default_factory=list)

    @property
    def found(self) -> Calibrated | None:
        """The task where it is kept."""
        return next((one for one, verdict in self.steps if verdict is Verdict.KEEP), None)

    @property
    def verdict(self) -> Verdict:
        """The last one."""
        return self.steps[-1][1]

    @property
    def moves(self) -> int:
        """How often it was moved."""
        return len(self.steps) - 1

    @property
    def spent(self) -> int:
        """Attempts that count."""
        return sum(one.valid for one, _ in self.steps)


@dataclass
class Measuring:
    """Measures tasks and writes their steps down.

    ``policy`` None takes attempts of any policy that the run already holds as made; ``budget``
    bounds the attempts that count, over all calls (0: no bound). Raises UsageError where the
    rule can keep nothing.
    """

    attempt: MakeAttempt
    rule: Rule
    rundir: RunDir
    concurrency: int = 4
    max_moves: int = 3
    policy: str | None = None
    harness: str = ""
    budget: int = 0
    spent: int = 0  # attempts that count, of the walks that were taken
    left_out: int = 0  # tasks that the budget did not reach

    def __post_init__(self) -> None:
        rule = self.rule
        if not rule.possible:
            raise UsageError(
                f"no number of successes in {rule.samples} attempts lies between {rule.low:g} and "
                f"{rule.high:g}: raise calibrate.samples, or widen calibrate.low and calibrate.high"
            )
        self._known = {
            (row.task, row.sample): row
            for row in self.rundir.rows(TABLE, Attempt)
            if self.policy in (None, row.policy) and OUTCOME_POLICY[row.outcome].trust
        }
        self._noted = set(self.rundir.rows(VERDICTS, Measured))
        self._free = asyncio.Semaphore(self.concurrency)

    async def walk(
        self, tasks: Sequence[Task], starts: Sequence[int], taken: Callable[[Walk], bool]
    ) -> None:
        """Walk each task from its rung of ``starts``; ``taken`` gets the walks in that order.

        It ends early where ``taken`` says False, or where the budget might not cover the next.
        Raises UsageError where the budget does not even cover the first.
        """
        queue = deque(zip(tasks, starts, strict=True))
        if queue and self.budget and not self.spent and self._longest(queue[0][0]) > self.budget:
            raise UsageError(
                f"a budget of {self.budget} attempts does not cover one task, which may take "
                f"{self._longest(queue[0][0])}: raise calibrate.budget, or lower "
                "calibrate.samples or calibrate.max_moves"
            )
        running: deque[asyncio.Task[Walk]] = deque()
        try:
            while True:
                while queue and self._may_begin(queue[0][0], running):
                    running.append(asyncio.create_task(self._along(*queue.popleft())))
                if not running:
                    self.left_out += len(queue)
                    return
                busy = [one for one in running if not one.done()]
                if not running[0].done():
                    await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
                while running and running[0].done():
                    walk = running.popleft().result()
                    self.spent += walk.spent
                    self._note(walk)
                    if not taken(walk):
                        return
        finally:
            await end(running)

    def _may_begin(self, task: Task, running: Sequence[asyncio.Task[Walk]]) -> bool:
        """Whether there is a place, and budget even if all that run take their longest way."""
        busy = [one for one in running if not one.done()]
        if len(busy) >= self.concurrency:
            return False
        if not self.budget:
            return True
        over = sum(one.result().spent for one in running if one.done())
        owed = len(busy) * self.rule.samples * (self.max_moves + 1)
        return self.spent + over + owed + self._longest(task) <= self.budget

    def _longest(self, task: Task) -> int:
        """Attempts of the longest walk."""
        return self.rule.samples * min(self.max_moves + 1, len(task.hints))

    async def _along(self, task: Task, start: int) -> Walk:
        rungs = sorted(hint.rung for hint in task.hints)
        at = max((i for i, rung in enumerate(rungs) if rung <= start), default=0)
        walk = Walk(task)
        seen: set[int] = set()
        while 0 <= at < len(rungs) and at not in seen and len(seen) <= self.max_moves:
            seen.add(at)
            measured, verdict = await self._measure(task.at_rung(rungs[at]))
            walk.steps.append((measured, verdict))
            if verdict in (Verdict.KEEP, Verdict.OPEN):
                break
            at += -1 if verdict is Verdict.TOO_EASY else 1
        return walk

    async def _measure(self, task: Task) -> tuple[Calibrated, Verdict]:
        """Attempts until the verdict is fixed; OPEN where infrastructure broke too many."""
        passes = valid = made = 0
        while owed := min(self.rule.owed(passes, valid), self.rule.samples - made):
            rows: list[Attempt] = []

            async def one(sample: int, rows: list[Attempt] = rows) -> None:
                rows.append(await self._sample(task, sample))

            await together([one(sample) for sample in range(made, made + owed)])
            made += owed
            counted = [row for row in rows if OUTCOME_POLICY[row.outcome].trust]
            valid += len(counted)
            passes += sum(row.outcome is Outcome.RESOLVED for row in counted)
        return Calibrated(task, passes, valid), self.rule.verdict(passes, valid)

    async def _sample(self, task: Task, sample: int) -> Attempt:
        known = self._known.get((task.id, sample))
        if known is not None:
            return known
        async with self._free:
            return await tried(partial(self.attempt, task, sample), self.rundir, TABLE)

    def _note(self, walk: Walk) -> None:
        for one, verdict in walk.steps:
            row = Measured(
                task=one.task.id,
                name=one.task.name,
                rung=one.task.rung,
                passes=one.passes,
                valid=one.valid,
                kept=verdict is Verdict.KEEP,
                verdict=verdict,
                policy=self.policy or "",
                harness=self.harness,
                samples=self.rule.samples,
                low=self.rule.low,
                high=self.rule.high,
                probe=self.rule.probe,
            )
            if row not in self._noted:
                self._noted.add(row)
                self.rundir.append(VERDICTS, row)
