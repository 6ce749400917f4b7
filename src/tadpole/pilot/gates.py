"""The gates: changes that the grader must pass or refuse before a task is a task.

Protects against: hidden tests that pass without a repair, or others that fail then, repairs that
do not pass, and tests that vanish instead of failing, so that a solver would win by taking out the
edited function or by making its module unreadable. Does not protect against weak tests: what
these are worth :mod:`tadpole.pilot.strength` measures.
"""

import asyncio
from collections.abc import Iterator, Sequence

from tadpole.errors import GraderError
from tadpole.outcome import GradeStatus
from tadpole.pilot.hide import without_tests
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import Grader
from tadpole.task import FileChange, Task
from tadpole.together import each
from tadpole.trace import Grade

# An empty change is graded without a run; this one makes the tests run and changes no code.
NO_OP = (FileChange("tadpole-changes-nothing.txt", b""),)


async def gate(task: Task, grader: Grader, at_once: int = 1) -> None:
    """Send every change of :func:`changes` through the grader, ``at_once`` at a time.

    Raises Dropped for a wrong grade, GraderError where it could not be graded.
    """
    asked, free = list(changes(task)), asyncio.Semaphore(at_once)

    async def graded(delta: Sequence[FileChange]) -> Grade:
        async with free:
            return await grader.grade(task, delta)

    grades = await each(graded(delta) for delta, *_ in asked)
    for (delta, wanted, reason), grade in zip(asked, grades, strict=True):
        if grade.status is GradeStatus.INVALID:
            raise GraderError(f"{task.name} could not be graded: {grade.reason}")
        if grade.resolved != wanted:
            raise Dropped(reason, grade.reason)
        if delta is NO_OP and set(grade.failing) != set(task.fail_to_pass):
            raise Dropped(DropReason.OTHERS_FAIL)


def changes(task: Task) -> Iterator[tuple[Sequence[FileChange], bool, DropReason]]:
    """What is graded: the change, whether it must pass, and the reason where that fails."""
    yield task.gold, True, DropReason.UNSOLVED
    yield NO_OP, False, DropReason.FREE
    whole = next((c for c in task.gold if c.content and c.path.endswith(".py")), None)
    if whole is None or whole.content is None:
        return
    torn = FileChange(whole.path, whole.content + b"\n)\n", whole.executable)
    yield _with(task.gold, torn), False, DropReason.PASSES_BROKEN
    for change in task.gold:
        name = next(iter(_defined(task, change)), None)
        if name is not None:
            yield _with(task.gold, name), False, DropReason.PASSES_DELETED
            return


def _defined(task: Task, change: FileChange) -> Iterator[FileChange]:
    """The file of a repair without the first of the edited functions that it defines."""
    for name in task.provenance.edited_functions:
        content = without_tests(change.path, change.content or b"", [tuple(name.split("."))])
        if content is not None:
            yield FileChange(change.path, content, change.executable)


def _with(gold: Sequence[FileChange], change: FileChange) -> tuple[FileChange, ...]:
    return tuple(change if other.path == change.path else other for other in gold)
