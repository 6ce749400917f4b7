"""Rewards computed again from the stored patches: no model, and the run's rows stay as they are.

One row per attempt goes into the table ``regrade``. It names the tier and the grader, so that
what this grader has graded at this tier is not graded again: a second call does nothing, one
after a kill does the rest. Grades of infrastructure are never kept.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tadpole.errors import GraderError, RunError
from tadpole.grading.cache import grader_version
from tadpole.grading.patch import changes_of, file_of
from tadpole.job import Job
from tadpole.outcome import STOP_POLICY, GradeStatus, Outcome, Tier, outcome_of
from tadpole.rl.reward import raw_reward
from tadpole.task import FileChange, Task
from tadpole.together import together
from tadpole.trace import Attempt, Grade, Record

TABLES = ("calibration", "rollouts", "validation", "eval")
TABLE = "regrade"


class Regraded(Record):
    """One attempt, before and after. Rewards are raw; None where there is none to trust."""

    format: Literal[1] = 1
    table: str
    row: int  # index in that table
    task: str
    task_name: str
    policy: str
    sample: int
    tier: Tier
    grader: str  # which rules and program
    was: Outcome
    outcome: Outcome
    before: float | None
    after: float | None
    grade: Grade

    @property
    def changed(self) -> bool:
        """Whether the reward is another one; what could not be told has not changed."""
        return self.after is not None and self.after != self.before

    @property
    def key(self) -> tuple[str, int, Tier, str]:
        """What was graded, how and by what."""
        return (self.table, self.row, self.tier, self.grader)


@dataclass(frozen=True)
class _Owed:
    table: str
    row: int
    attempt: Attempt
    task: Task


async def regrade_run(
    job: Job, tasks: Sequence[Task], *, tier: Tier, concurrency: int
) -> list[Regraded]:
    """Grade every attempt of the run whose work tree can be graded, several at a time.

    ``tasks``: those of the run, at any rung. ``job.workshop.grader`` grades, at ``tier``.
    An attempt whose patch is gone cannot be graded, whatever it was graded before. Raises
    RunError where an attempt's task is gone, SandboxUnavailable.
    """
    rundir, version = job.rundir, grader_version()
    by_id = {t.id: t for task in tasks for t in (task.at_rung(hint.rung) for hint in task.hints)}
    every = []
    for table in TABLES:
        for row, attempt in enumerate(rundir.rows(table, Attempt)):
            if not STOP_POLICY[attempt.stop].grade:
                continue  # infrastructure ended it: there is no work tree
            if attempt.task not in by_id:
                raise RunError(
                    f"task {attempt.task_name} ({attempt.task}) of {rundir.table(table)} is not "
                    f"in {job.task_directory}: put it back"
                )
            every.append(_Owed(table, row, attempt, by_id[attempt.task]))
    done = {row.key: row for row in rundir.rows(TABLE, Regraded)}
    found: dict[tuple[str, int], Regraded] = {}
    queue = []
    for owed in every:
        known = done.get((owed.table, owed.row, tier, version))
        lost = bool(owed.attempt.patch) and not rundir.has(owed.attempt.patch)
        if known is None or lost:  # an earlier grade says nothing of a patch that is gone
            queue.append(owed)
        else:
            found[owed.table, owed.row] = known
    rest = iter(queue)
    with job.progress.task("regrade", total=len(every), done=len(found)) as bar:

        async def work() -> None:
            for owed in rest:
                grade = await _grade(job, owed)
                row = _regraded(job, owed, grade, tier, version)
                if grade.status is not GradeStatus.INVALID:
                    rundir.append(TABLE, row)
                found[owed.table, owed.row] = row
                bar.advance(note=owed.task.name)

        await together([work() for _ in range(min(concurrency, len(queue)))])
    return [found[owed.table, owed.row] for owed in every]


async def _grade(job: Job, owed: _Owed) -> Grade:
    delta: tuple[FileChange, ...] = ()
    if owed.attempt.patch:
        try:
            patch = job.rundir.load_patch(owed.attempt.patch)
        except RunError as error:
            return Grade(status=GradeStatus.INVALID, reason=str(error))
        tree = await job.workshop.store.tree(owed.task)
        try:
            delta = await asyncio.to_thread(changes_of, patch, lambda path: file_of(tree, path))
        except GraderError as error:
            reason = f"{owed.attempt.patch} does not apply: {error}"
            return Grade(status=GradeStatus.INVALID, reason=reason)
    return await job.workshop.grader.grade(owed.task, delta)


def _regraded(job: Job, owed: _Owed, grade: Grade, tier: Tier, version: str) -> Regraded:
    attempt = owed.attempt
    outcome = outcome_of(attempt.stop, grade.status, grade.resolved, not attempt.patch)
    return Regraded(
        table=owed.table,
        row=owed.row,
        task=attempt.task,
        task_name=attempt.task_name,
        policy=attempt.policy,
        sample=attempt.sample,
        tier=tier,
        grader=version,
        was=attempt.outcome,
        outcome=outcome,
        before=attempt.reward,
        after=raw_reward(outcome, attempt.stop, job.config.train.truncated_reward),
        grade=grade,
    )
