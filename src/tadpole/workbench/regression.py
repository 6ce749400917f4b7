"""The test suite before and after a patch, each in a fresh box.

Protects against: a patch that passes because it changed the tests (where it touches tests or
what configures them, the suite is also run with these files as they were), flaky tests taken for
results and results for flaky tests (what changed is run again on both sides; what varies with the
patch alone is a regression), and a run that did not happen, or not to its end, taken for one that
passed: that is an outcome of its own.

Does not protect against: patched code that was written to forge the reporter's file from within
the test process. The reviewer sees such code in the patch.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.outcome import TestStatus
from tadpole.protocols import ExecReason, Sandbox, SandboxEngine
from tadpole.repos.testrun import TestReport, run_tests
from tadpole.task import FileChange, Recipe
from tadpole.trace import Record
from tadpole.workbench.environment import Environment
from tadpole.workbench.policy import TestsPolicy
from tadpole.workbench.riskypath import decides_tests

COMMAND = "the test command"  # the id of a command that is read by its exit status
_FINE = (TestStatus.PASSED, TestStatus.XFAILED, TestStatus.SKIPPED, TestStatus.XPASSED)
_TAIL = 2000
_LISTED = 200
_QUICK = 120.0  # seconds of the first runs together
_DOUBT = 3  # runs of the base, for one with the patch, before what wavers is laid to the patch


class TestsOutcome(StrEnum):
    """Whether there is anything to go by."""

    __test__ = False  # not a test class for pytest

    COMPARED = "compared"
    NO_TESTS = "no_tests"
    COULD_NOT_RUN = "could_not_run"


class Regression(Record):
    """What the tests say of a patch. Ids are pytest's, relative to the repository."""

    outcome: TestsOutcome
    reason: str = ""  # why they could not run
    command: str = ""
    before_passed: int = 0
    after_passed: int = 0
    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    still_failing: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    old_tests: bool = False  # also run with the tests as they were
    output: str = ""  # the end of what the run after printed
    seconds: float = 0.0


@dataclass(frozen=True)
class Suite:
    """How and where a repository's tests are run."""

    engine: SandboxEngine
    environment: Environment
    recipe: Recipe
    policy: TestsPolicy
    tree: Path  # the base, never written to

    @property
    def pytest(self) -> tuple[str, ...] | None:
        """Arguments of pytest; None for another command."""
        if not self.policy.command:
            return ()
        words = shlex.split(self.policy.command)
        for start in (["pytest"], ["python", "-m", "pytest"], ["python3", "-m", "pytest"]):
            if words[: len(start)] == start and not set(self.policy.command) & set(";&|<>$`\n"):
                return tuple(words[len(start) :])
        return None

    @property
    def command(self) -> str:
        """For a person."""
        return self.policy.command or " ".join(("pytest", *self.recipe.test_paths))

    async def run(
        self, delta: Sequence[FileChange], ids: Sequence[str] | None = None, hash_seed: int = 0
    ) -> TestReport:
        """One run over the base with ``delta``, in a box of its own; of ``ids`` alone if given."""
        box = await self.engine.start(self.environment.spec(self.tree, self.recipe))
        try:
            await box.write(delta)
            arguments = self.pytest
            if arguments is None:
                return await self._plain(box)
            recipe = self.recipe
            if arguments:
                recipe = replace(recipe, pytest_args=arguments, test_paths=())
            limit = self.policy.seconds
            python = self.environment.python
            return await run_tests(
                box, recipe, python, ids, timeout=limit, test_seconds=limit, hash_seed=hash_seed
            )
        finally:
            await box.close()

    async def _plain(self, box: Sandbox) -> TestReport:
        argv = ["/bin/bash", "-o", "pipefail", "-c", self.policy.command]
        result = await box.exec(argv, timeout=self.policy.seconds)
        good = result.code == 0 and result.reason is ExecReason.EXITED
        return TestReport(
            statuses={COMMAND: TestStatus.PASSED if good else TestStatus.FAILED},
            seconds={COMMAND: result.seconds},
            exit_code=result.code,
            collected=result.code not in (126, 127),
            output_tail=(result.stdout + result.stderr)[-_TAIL:],
            reason=result.reason,
            wall=result.seconds,
            finished=result.reason is ExecReason.EXITED,
        )


async def compare(
    suite: Suite, delta: Sequence[FileChange], before: TestReport | None = None
) -> Regression:
    """Run the suite on the base and on the base with ``delta``. Raises SandboxUnavailable.

    ``before``: the run of the base, where there is one.
    """
    said = Regression(outcome=TestsOutcome.COULD_NOT_RUN, command=suite.command)
    try:
        before = before or await suite.run(())
        if why := _not_run(before):
            tail = before.output_tail[-_TAIL:]
            reason = f"on the base, without the patch: {why}{_missing(suite, why)}"
            return said.model_copy(update={"reason": reason, "output": tail})
        if not before.statuses:
            return said.model_copy(update={"outcome": TestsOutcome.NO_TESTS})
        after = await suite.run(delta)
        if after.reason is not ExecReason.EXITED and not after.statuses:
            reason = f"with the patch: ended by {after.reason.value} before the first test"
            return said.model_copy(update={"reason": reason})
        old = [change for change in delta if not decides_tests(change.path)]
        guarded = None
        if len(old) != len(delta):
            guarded = await suite.run(old)
        found = await _compared(suite, delta, before, after, guarded)
        if not found.newly_failing and (why := _cut_short(before, after)):
            could_not = {"outcome": TestsOutcome.COULD_NOT_RUN, "reason": f"with the patch: {why}"}
            return found.model_copy(update=could_not)
        return found
    except (SandboxStartError, SandboxDied, OSError, ValueError) as error:
        return said.model_copy(update={"reason": str(error)})


async def _compared(
    suite: Suite,
    delta: Sequence[FileChange],
    before: TestReport,
    after: TestReport,
    guarded: TestReport | None,
) -> Regression:
    fixed = [name for name in after.passed if before.statuses.get(name) not in _FINE]
    fixed = [name for name in after.statuses if name in set(fixed)]
    seconds = before.wall + after.wall
    kept = [change for change in delta if not decides_tests(change.path)]
    # Which ids broke, and with what applied. A test of the base that the patch removed or
    # rewrote still has to pass as it was; what is missing with the patch alone is then no loss.
    broken = {False: _broken(before, after), True: list[str]()}
    if guarded is not None:
        seconds += guarded.wall
        broken[True] = _broken(before, guarded)
        gone = {i for i in before.statuses if i not in after.statuses} | set(broken[True])
        broken[False] = [i for i in broken[False] if i not in gone]
    # Where that is quick the whole suite, because tests may depend on each other.
    quick = seconds < _QUICK
    lost = list(dict.fromkeys((*broken[False], *broken[True])))
    wavering: set[str] = set()  # fail and pass with the patch
    for seed in range(1, suite.policy.repeats + 1):
        for applied, ids in ((delta, broken[False]), (kept, broken[True])):
            if ids:
                again = await suite.run(applied, None if quick else ids, seed)
                wavering |= set(ids) - set(_broken(before, again))
                seconds += again.wall
    was_red = [name for name in fixed if name in before.statuses]
    varying: set[str] = set()  # fail and pass without it: only then it is not the patch
    for seed in range(1, _DOUBT * suite.policy.repeats + 1):
        asked = [name for name in lost if name in wavering - varying and name in before.statuses]
        asked += was_red if seed <= suite.policy.repeats else []
        if not asked:
            break
        again = await suite.run((), None if quick else asked, seed)
        seconds += again.wall
        if not _not_run(again):
            varying |= set(_broken(before, again)) | (set(was_red) & again.passed)
    flaky = [name for name in lost if name in wavering & varying]
    flaky += [name for name in was_red if name in varying]
    broken = {old: [i for i in ids if i not in flaky] for old, ids in broken.items()}
    fixed = [name for name in fixed if name not in flaky]
    red = [
        name
        for name, status in after.statuses.items()
        if not (status in _FINE or name in flaky)
        and before.statuses.get(name, TestStatus.PASSED) not in _FINE
    ]
    return Regression(
        outcome=TestsOutcome.COMPARED,
        command=suite.command,
        before_passed=len(before.passed),
        after_passed=len(after.passed),
        newly_failing=tuple((*broken[False], *broken[True])[:_LISTED]),
        newly_passing=tuple(fixed[:_LISTED]),
        still_failing=tuple(red[:_LISTED]),
        flaky=tuple(dict.fromkeys(flaky)),
        old_tests=guarded is not None,
        output=after.output_tail[-_TAIL:],
        seconds=seconds,
    )


def _missing(suite: Suite, why: str) -> str:
    """What to do where there is no pytest to run."""
    if "No module named 'pytest'" not in why:
        return ""
    where = "that environment" if suite.environment.venv else "a .venv of the repository"
    return f"; install it in {where}, or name an environment that has it with --venv"


def _not_run(report: TestReport) -> str:
    """Why a run says nothing; empty where it does."""
    last = _last_word(report.output_tail)
    if report.reason is not ExecReason.EXITED:
        return f"ended by {report.reason.value}"
    if not report.collected:
        return last or f"exit code {report.exit_code}"
    if not report.finished:
        return f"the process left early with exit code {report.exit_code}"
    if report.collection_errors and not report.statuses:
        return f"{len(report.collection_errors)} test modules cannot be imported"
    return ""


def _last_word(output: str) -> str:
    """The last line that names an error; where none does, the last one."""
    lines = [line.strip() for line in output.strip().splitlines()]
    return next(iter([line for line in lines if "error: " in line.lower()][-1:] or lines[-1:]), "")


def _cut_short(before: TestReport, after: TestReport) -> str:
    """Why a run with a patch does not tell of all its tests; empty where it does."""
    if why := _not_run(after):
        return why
    if not after.statuses:
        return f"no test ran any more (exit code {after.exit_code})"
    for module, message in after.collection_errors.items():
        if module not in before.collection_errors:
            return f"{module} cannot be imported: {_last_word(message)}"
    if _unheard(after) > max(0, _unheard(before)):
        return f"pytest ended before {_unheard(after)} of its tests"
    if COMMAND not in after.statuses and after.exit_code not in (0, 1, before.exit_code):
        return f"pytest left early, with exit code {after.exit_code}"
    return ""


def _unheard(report: TestReport) -> int:
    """Tests that were to run and of which nothing is told."""
    return (report.selected or 0) - len(report.statuses)


def _broken(before: TestReport, after: TestReport) -> list[str]:
    """Ids that were fine and no longer are, and new ones that fail.

    One that passed has to pass, not to be skipped. A new module that cannot be imported counts.
    """
    found = []
    for name, was in before.statuses.items():
        now = after.statuses.get(name)
        lost = now is not TestStatus.PASSED if was is TestStatus.PASSED else now not in _FINE
        if was in _FINE and lost:
            found.append(name)
    found += [i for i, s in after.statuses.items() if i not in before.statuses and s not in _FINE]
    known = {name.partition("::")[0] for name in before.statuses} | set(before.collection_errors)
    return [*found, *(module for module in after.collection_errors if module not in known)]
