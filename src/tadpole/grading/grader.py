"""Grades a change by its hidden tests, in a fresh box with a filtered change.

Protects against: what the agent left behind in its own box (the grading box is a new one, from
the start tree), changes to tests, pytest and Python themselves (:mod:`tadpole.grading.filter`),
code under test that ends the process, hangs, forges output, exit status or report, or patches
the test runner (:mod:`tadpole.grading.bootstrap`), and infrastructure that fails: it becomes
``INVALID``, never a reward of 0.

At tier 3 (:mod:`tadpole.grading.challenge`) it also protects against code that was written
against this very grader: it runs in the process of the tests and can report what it likes
there, but does not know which of the rewritten tests must fail. At tier 1 such code wins.

Does not protect against weak tests (:mod:`tadpole.pilot.strength` measures them), or against
source that special-cases their inputs: what also holds for the rewritten tests is a repair.
"""

import asyncio
import dataclasses
import os
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from tadpole.errors import SandboxUnavailable, TadpoleError
from tadpole.grading.cache import grade_key
from tadpole.grading.challenge import Challenge
from tadpole.grading.filter import Dropped, installed_modules, split
from tadpole.grading.report import Verdict
from tadpole.grading.run import GradingStore, Runner, graded_ids
from tadpole.grading.shared import SharedRunner
from tadpole.outcome import GradeStatus, Tier
from tadpole.protocols import SandboxEngine, SandboxSpec
from tadpole.task import FileChange, Task
from tadpole.trace import Grade

_ATTEMPTS = 3
_RETRY_SECONDS = 0.2
_GRADED = GradeStatus.GRADED


class PytestGrader:
    """Implements :class:`tadpole.protocols.Grader` with pytest.

    May be called concurrently (how much at once is the caller's decision); calls with the same
    task and change share one run, and its grade is kept. ``task.test_seconds`` bounds the
    processor time of a run, and some multiple of it the wall time: a change that hangs is a wrong
    change, graded as not resolved. As a busy machine can cause the second, that grade is not kept;
    nor is that of a run that was killed twice, for which it can have too little memory.
    """

    def __init__(
        self,
        engine: SandboxEngine,
        store: GradingStore,
        *,
        tier: Tier = Tier.HARDENED,
        runner: Runner | None = None,
    ) -> None:
        self.tier = tier
        self._engine, self._store = engine, store
        self._runner = runner or Runner(engine, store)
        self._challenge = Challenge(self._runner)
        self._kept: dict[str, Grade] = {}
        self._running: weakref.WeakValueDictionary[str, asyncio.Lock]
        self._running = weakref.WeakValueDictionary()

    @cached_property
    def trusting(self) -> "PytestGrader":
        """The same for changes of our own making: its runs share boxes, and cost far less."""
        shared = SharedRunner(self._engine, self._store)
        return PytestGrader(self._engine, self._store, tier=self.tier, runner=shared)

    async def grade(self, task: Task, delta: Sequence[FileChange]) -> Grade:
        """Grade ``delta``, a change to the task's start tree.

        Raises SandboxUnavailable, because then nothing can be graded at all.
        """
        if not delta:
            return _not_run(task, (), "empty patch", self.tier)
        started = time.monotonic()
        try:
            spec = await self._store.spec(task)
        except SandboxUnavailable:
            raise
        except (TadpoleError, OSError) as error:
            return _invalid(f"the task's box cannot be made: {error}", started)
        installed = frozenset().union(*map(installed_modules, spec.mounts.values()))
        parts = split(
            task, delta, in_tree=lambda path: os.path.lexists(spec.tree / path), installed=installed
        )
        dropped = tuple(drop.path for drop in parts.dropped)
        if not parts.accepted:
            reason = f"empty patch: no file is taken into grading ({_counted(parts.dropped)})"
            return _not_run(task, dropped, reason, self.tier)
        key = grade_key(task, parts.accepted, self.tier)
        lock = self._running.setdefault(key, asyncio.Lock())
        async with lock:
            grade = self._kept.get(key)
            if grade is None:
                grade = await self._run(task, spec, parts.accepted, key, started)
        if parts.dropped and grade.status is not GradeStatus.INVALID:
            told = f"{grade.reason} (left out: {_counted(parts.dropped)})"
            return grade.model_copy(update={"dropped": dropped, "reason": told})
        return grade

    async def oracles(self, task: Task) -> Mapping[str, int] | None:
        """Which deciding test functions can be rewritten for tier 3; None at tier 1.

        Found by running the task's gold, once. Raises SandboxError or GraderError.
        """
        if self.tier is Tier.HARDENED:
            return None
        _, usable = await self._challenge.usable(task, await self._store.spec(task))
        return usable

    async def _run(
        self,
        task: Task,
        spec: SandboxSpec,
        accepted: Sequence[FileChange],
        key: str,
        started: float,
    ) -> Grade:
        error: Exception
        for attempt in range(_ATTEMPTS):
            try:
                verdict, tier = await self._proven(task, spec, accepted)
            except SandboxUnavailable:
                raise
            except (TadpoleError, OSError, ValueError) as failure:
                error = failure
                await asyncio.sleep(_RETRY_SECONDS * attempt)
                continue
            grade = Grade(
                status=verdict.status,
                resolved=verdict.status is _GRADED and not verdict.failing,
                tier=tier,
                failing=verdict.failing,
                reason=_one_line(verdict.reason),
                seconds=time.monotonic() - started,
            )
            if not verdict.timed_out and not verdict.killed:
                self._kept[key] = grade
            return grade
        return _invalid(f"could not be graded in {_ATTEMPTS} attempts: {error}", started)

    async def _proven(
        self, task: Task, spec: SandboxSpec, accepted: Sequence[FileChange]
    ) -> tuple[Verdict, Tier]:
        verdict = await self._runner.run(task, spec, accepted, graded_ids(task), task.hidden)
        if self.tier is Tier.HARDENED or verdict.failing or verdict.status is not _GRADED:
            return verdict, self.tier
        challenged = await self._challenge.verdict(task, spec, accepted)
        if challenged is None:
            reason = f"{verdict.reason} (tier 1: none of them can be rewritten)"
            return dataclasses.replace(verdict, reason=reason), Tier.HARDENED
        if challenged.failing:
            return challenged, self.tier
        reason = f"{verdict.reason} {challenged.reason}"
        return dataclasses.replace(verdict, reason=reason), self.tier


def _not_run(task: Task, dropped: tuple[str, ...], reason: str, tier: Tier) -> Grade:
    failing = tuple(dict.fromkeys((*task.fail_to_pass, *task.pass_to_pass)))
    return Grade(
        status=_GRADED, failing=failing, dropped=dropped, reason=_one_line(reason), tier=tier
    )


def _invalid(reason: str, started: float) -> Grade:
    seconds = time.monotonic() - started
    return Grade(status=GradeStatus.INVALID, reason=_one_line(reason), seconds=seconds)


def _counted(dropped: Sequence[Dropped]) -> str:
    counts = Counter(drop.reason.value for drop in dropped)
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())


def _one_line(text: str) -> str:
    return " ".join(text.split())[:1000]
