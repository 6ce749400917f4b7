"""Validates tasks without a model: the gold must pass, a change that does nothing must not."""

from collections.abc import Sequence
from dataclasses import dataclass

from tadpole.outcome import GradeStatus
from tadpole.pilot.gates import NO_OP
from tadpole.progress import Progress
from tadpole.protocols import Grader
from tadpole.task import Task
from tadpole.trace import Grade


@dataclass(frozen=True)
class Validity:
    """Whether a task holds, and what is wrong where it does not."""

    task: Task
    ok: bool
    reason: str = ""


async def validate_tasks(
    tasks: Sequence[Task], grader: Grader, progress: Progress
) -> list[Validity]:
    """Grade both changes of each task, one after the other. Raises SandboxUnavailable."""
    found = []
    with progress.task("validate", total=len(tasks)) as bar:
        for task in tasks:
            gold = await grader.grade(task, task.gold)
            nothing = await grader.grade(task, NO_OP)
            reason = wrong_with(task, gold, nothing)
            found.append(Validity(task, not reason, reason))
            bar.advance(note=task.name)
    return found


def wrong_with(task: Task, gold: Grade, nothing: Grade) -> str:
    """What is wrong with a task whose gold and no-op got these grades; empty for nothing."""
    for name, grade in (("gold", gold), ("no-op", nothing)):
        if grade.status is not GradeStatus.GRADED:
            return f"{name} could not be graded: {grade.reason}"
    if not gold.resolved:
        return f"the gold does not pass: {gold.reason}"
    if nothing.resolved:
        return "passes without a change"
    passing = set(task.fail_to_pass) - set(nothing.failing)
    if passing:
        return f"{sorted(passing)[0]} should fail before the change and passes"
    broken = set(nothing.failing) - set(task.fail_to_pass)
    return f"{sorted(broken)[0]} should pass before the change and fails" if broken else ""
