"""The gates: changes that the grader must pass or refuse before a task is a task.

Protects against: hidden tests that pass without a repair, or others that fail then, repairs that
do not pass, and tests that vanish instead of failing, so that a solver would win by taking out the
edited function or by making its module unreadable. Of several edited functions and files one is
tried, of which it is known that failing tests run it where that is known of any. Does not protect
against weak tests: what these are worth :mod:`tadpole.pilot.strength` measures.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from tadpole.errors import GraderError
from tadpole.outcome import GradeStatus
from tadpole.pilot.code import Code, Function
from tadpole.pilot.hide import without_tests
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import Grader
from tadpole.task import FileChange, Task
from tadpole.together import each
from tadpole.trace import Grade

# An empty change is graded without a run; this one makes the tests run and changes no code.
NO_OP = (FileChange("tadpole-changes-nothing.txt", b""),)


# Whether a failing test runs one of these lines of a file; of written tests, whether any does.
Runs = Callable[[str, Collection[int]], bool]


def _any(_path: str, _lines: Collection[int]) -> bool:
    return True


async def gate(task: Task, grader: Grader, at_once: int = 1, runs: Runs = _any) -> None:
    """Send every change of :func:`changes` through the grader, ``at_once`` at a time.

    Raises Dropped for a wrong grade, GraderError where it could not be graded.
    """
    asked, free = list(changes(task, runs)), asyncio.Semaphore(at_once)

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


def changes(
    task: Task, runs: Runs = _any
) -> Iterator[tuple[Sequence[FileChange], bool, DropReason]]:
    """What is graded: the change, whether it must pass, and the reason where that fails.

    ``runs`` tells of lines of the repaired files.
    """
    yield task.gold, True, DropReason.UNSOLVED
    yield NO_OP, False, DropReason.FREE
    files = [change for change in task.gold if change.content and change.path.endswith(".py")]
    files.sort(key=lambda change: not runs(change.path, range(1, _lines(change) + 1)))
    if not files:
        return
    torn = replace(files[0], content=(files[0].content or b"") + b"\n)\n")
    yield _with(task.gold, torn), False, DropReason.PASSES_BROKEN
    edited = [(change, one) for change in files for one in _edited(task, change)]
    edited.sort(key=lambda pair: not runs(pair[0].path, _body(pair[1])))
    for change, function in edited:
        chains = [tuple(function.name.split("."))]
        content = without_tests(change.path, change.content or b"", chains)
        if content is not None:
            without = replace(change, content=content)
            yield _with(task.gold, without), False, DropReason.PASSES_DELETED
            return


def _lines(change: FileChange) -> int:
    return (change.content or b"").count(b"\n") + 1


def _edited(task: Task, change: FileChange) -> list[Function]:
    """The edited functions of a repaired file, in the order in which the task names them."""
    functions: list[Function] = []
    with contextlib.suppress(ValueError):
        functions = Code.decode(change.path, change.content or b"").functions
    names = task.provenance.edited_functions
    return [one for name in names for one in functions if one.name == name]


def _body(function: Function) -> range:
    """Its lines that do not run where it is defined."""
    return range(function.body[0].lineno, function.lines.stop) if function.body else range(0)


def _with(gold: Sequence[FileChange], change: FileChange) -> tuple[FileChange, ...]:
    return tuple(change if other.path == change.path else other for other in gold)
