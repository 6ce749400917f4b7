"""Calibration: which tasks does the current policy sometimes solve, and under which statement?

Each task is measured on its hint ladder (:mod:`tadpole.pilot.walk`) until its pass rate lies in
the band or the moves are used up. Only the words change, never code or tests. Attempts that
infrastructure broke count neither for nor against: they are made again, and a verdict that is
still open after that is owed to the next calibration.
"""

import math
from collections.abc import Awaitable, Callable, Sequence

from tadpole.pilot.decision import Rule, Verdict
from tadpole.pilot.diversity import Quota, dealt, traits_of
from tadpole.pilot.walk import (
    TABLE,
    VERDICTS,
    Calibrated,
    MakeAttempt,
    Measured,
    Measuring,
    Walk,
)
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import Task

__all__ = ["BAND", "TABLE", "VERDICTS", "Calibrated", "Measured", "calibrate", "fill_quota"]

BAND = (0.0, 1.0)


async def calibrate(
    tasks: Sequence[Task],
    *,
    attempt: MakeAttempt,
    samples: int,
    rundir: RunDir,
    progress: Progress,
    band: tuple[float, float] = BAND,
    probe: int = 0,
    start_rung: int | None = None,
    max_moves: int = 3,
    concurrency: int = 4,
    policy: str | None = None,
    harness: str = "",
    budget: int = 0,
    quota: Quota | None = None,
) -> list[Calibrated]:
    """Measure the tasks by real attempts and return those inside the band, in their order.

    ``samples``, ``band`` and ``probe`` are those of :class:`tadpole.pilot.decision.Rule`.
    ``start_rung`` is the rung where each walk starts (None: the task's own), cut to those that
    the task has. Attempts that ``rundir`` already holds (of ``policy``, where given) are not
    made again. ``budget`` bounds the attempts that count, of all tasks together (0: no bound):
    a task is begun only while its longest walk still fits. ``quota`` ends it as soon as enough
    are kept, and leaves out what its caps refuse.

    Raises UsageError where the band holds no possible count, or the budget not one task.
    """
    measuring = Measuring(
        attempt=attempt,
        rule=Rule(samples, *band, probe=probe),
        rundir=rundir,
        concurrency=concurrency,
        max_moves=max_moves,
        policy=policy,
        harness=harness,
        budget=budget,
    )
    starts = [task.rung if start_rung is None else start_rung for task in tasks]
    limits = quota or Quota(0)
    kept: list[Calibrated] = []
    with progress.task("calibrate", total=len(tasks)) as bar:

        def taken(walk: Walk) -> bool:
            bar.advance(note=f"{walk.task.name}: {_judged(walk, limits, kept)}")
            return not limits.full

        await measuring.walk(tasks, starts, taken)
    if measuring.left_out:
        progress.say(
            f"the budget of {budget} attempts is used up: {measuring.left_out} of "
            f"{len(tasks)} tasks are not measured"
        )
    return kept


async def fill_quota(
    quota: int,
    tasks: Sequence[Task],
    measured: Callable[[Sequence[Task]], Awaitable[list[Calibrated]]],
    make_more: Callable[[int], Awaitable[Sequence[Task]]],
) -> list[Calibrated]:
    """Measure, and while fewer than ``quota`` are kept make more and measure again.

    ``make_more`` gets the number of tasks that there should be in all, at most twice as many as
    there are, and returns all that there are then: no more than before where no source gives any.
    """
    kept = await measured(dealt(tasks))
    while len(kept) < quota:
        missing = quota - len(kept)
        yielded = math.ceil(missing * len(tasks) / max(1, len(kept)))
        more = await make_more(len(tasks) + min(max(missing, yielded), len(tasks)))
        if len(more) <= len(tasks):
            break
        tasks = more
        kept = await measured(dealt(tasks))  # attempts that were made are not made again
    return kept


def _judged(walk: Walk, limits: Quota, kept: list[Calibrated]) -> str:
    """Keep a walk's task where the round still wants it; what to tell of it."""
    found = walk.found
    if found is None:
        return walk.verdict.value if walk.verdict is Verdict.OPEN else "not learnable yet"
    refused = limits.refuses(traits_of(found.task))
    if refused is not None:
        return f"enough of its {refused.value}"
    limits.take(traits_of(found.task))
    kept.append(found)
    return f"{found.passes}/{found.valid}"
