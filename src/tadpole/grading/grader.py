"""Grades a change by its hidden tests, in a fresh box with a filtered change.

Protects against: what the agent left behind in its own box (the grading box is a new one, from
the start tree), changes to tests, pytest and Python themselves (:mod:`tadpole.grading.filter`),
code under test that ends the process, hangs, forges output, exit status or report, or patches
the test runner (:mod:`tadpole.grading.bootstrap`), and infrastructure that fails: it becomes
``INVALID``, never a reward of 0.

Does not protect against: code that was written against this very grader. It runs in the process
of the tests, can find the key of the report there, and can then report what it likes. What
closes that is a second run with rewritten oracles, of which only the host knows which must fail;
it goes between :func:`tadpole.grading.report.judge` and the grade (:meth:`PytestGrader._proven`).
Nor does it protect against weak tests, or against source that special-cases their inputs.
"""

import asyncio
import dataclasses
import math
import os
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

from tadpole.errors import GraderError, SandboxUnavailable, TadpoleError
from tadpole.grading.cache import GradeCache, grade_key
from tadpole.grading.filter import Dropped, installed_modules, split
from tadpole.grading.report import Job, Verdict, command, judge, must_fail_names
from tadpole.outcome import GradeStatus
from tadpole.protocols import Sandbox, SandboxEngine, SandboxSpec
from tadpole.task import FileChange, Task
from tadpole.trace import Grade

_ATTEMPTS = 3
_RETRY_SECONDS = 0.2
_WALL = 4  # deadline by the clock: this many times the processor time, and a start
_OPTIONS = ("--maxfail=0", "--tb=no", "--color=no", "-p", "no:cacheprovider", "-q")


class GradingStore(Protocol):
    """What the grader needs of :class:`tadpole.repos.store.Store`."""

    async def spec(self, task: Task) -> SandboxSpec:
        """The box in which an agent starts at this task."""
        ...

    def python(self, of: Task, /) -> str:
        """Path of the interpreter inside that box."""
        ...


class PytestGrader:
    """Implements :class:`tadpole.protocols.Grader` with pytest.

    May be called concurrently (how much at once is the caller's decision); calls with the same
    task and change share one run, and its grade is kept. ``task.test_seconds`` bounds the
    processor time of a run, and some multiple of it the wall time: a change that hangs is a wrong
    change, graded as not resolved. As a busy machine can cause the second, that grade is not kept.
    """

    def __init__(
        self, engine: SandboxEngine, store: GradingStore, *, cache_dir: Path | None = None
    ) -> None:
        self._engine = engine
        self._store = store
        self._cache = GradeCache(cache_dir)
        self._running: weakref.WeakValueDictionary[str, asyncio.Lock]
        self._running = weakref.WeakValueDictionary()

    async def grade(self, task: Task, delta: Sequence[FileChange]) -> Grade:
        """Grade ``delta``, a change to the task's start tree.

        Raises SandboxUnavailable, because then nothing can be graded at all.
        """
        if not delta:
            return _not_run(task, (), "empty patch")
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
            return _not_run(task, dropped, reason)
        key = grade_key(task, parts.accepted)
        lock = self._running.setdefault(key, asyncio.Lock())
        async with lock:
            grade = self._cache.get(key)
            if grade is None:
                grade = await self._run(task, spec, parts.accepted, key, started)
        if parts.dropped and grade.status is not GradeStatus.INVALID:
            told = f"{grade.reason} (left out: {_counted(parts.dropped)})"
            return grade.model_copy(update={"dropped": dropped, "reason": told})
        return grade

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
                verdict = await self._proven(task, spec, accepted)
            except SandboxUnavailable:
                raise
            except (TadpoleError, OSError, ValueError) as failure:
                error = failure
                await asyncio.sleep(_RETRY_SECONDS * attempt)
                continue
            grade = Grade(
                status=verdict.status,
                resolved=verdict.status is GradeStatus.GRADED and not verdict.failing,
                failing=verdict.failing,
                reason=_one_line(verdict.reason),
                seconds=time.monotonic() - started,
            )
            if not verdict.timed_out:
                self._cache.put(key, grade)
            return grade
        return _invalid(f"could not be graded in {_ATTEMPTS} attempts: {error}", started)

    async def _proven(
        self, task: Task, spec: SandboxSpec, accepted: Sequence[FileChange]
    ) -> Verdict:
        now, later = list[FileChange](), list[FileChange]()
        for change in accepted:
            (later if PurePosixPath(change.path).name == "pyproject.toml" else now).append(change)
        job = _job(task, spec, later)
        env = {name: value for name, value in spec.env.items() if name != "PYTHONPATH"}
        box = await self._engine.start(
            dataclasses.replace(spec, env={**env, "PYTHONHASHSEED": "0"})
        )
        try:
            await box.write(now)
            await box.write(task.hidden)  # after the agent's files, so that these hold
            argv = command(self._store.python(task), spec.workdir)
            result = await box.exec(argv, timeout=_WALL * task.test_seconds + 10, stdin=job.text())
            return judge(job, result, await _content(box, job.report))
        finally:
            await box.close()


def _job(task: Task, spec: SandboxSpec, later: Sequence[FileChange]) -> Job:
    ids = tuple(dict.fromkeys((*task.fail_to_pass, *task.pass_to_pass)))
    if not ids:
        raise GraderError(f"task {task.name} has no tests: validate it again")
    search = [path for path in spec.env.get("PYTHONPATH", "").split(":") if path]
    roots = [os.path.normpath(f"{spec.workdir}/{path}") for path in task.recipe.import_paths]
    return Job(
        ids=ids,
        args=(*task.recipe.pytest_args, f"--rootdir={spec.workdir}", *_OPTIONS),
        paths=tuple(dict.fromkeys([spec.workdir, *search, *roots])),
        env={"PYTHONPATH": spec.env["PYTHONPATH"]} if search else {},
        later=later,
        seconds=max(1, math.ceil(task.test_seconds)),
        must_fail=must_fail_names(ids),
    )


async def _content(box: Sandbox, path: str) -> bytes | None:
    try:
        return await box.read(path)
    except OSError:  # removed, or replaced by something that is no file
        return None


def _not_run(task: Task, dropped: tuple[str, ...], reason: str) -> Grade:
    failing = tuple(dict.fromkeys((*task.fail_to_pass, *task.pass_to_pass)))
    return Grade(
        status=GradeStatus.GRADED, failing=failing, dropped=dropped, reason=_one_line(reason)
    )


def _invalid(reason: str, started: float) -> Grade:
    seconds = time.monotonic() - started
    return Grade(status=GradeStatus.INVALID, reason=_one_line(reason), seconds=seconds)


def _counted(dropped: Sequence[Dropped]) -> str:
    counts = Counter(drop.reason.value for drop in dropped)
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())


def _one_line(text: str) -> str:
    return " ".join(text.split())[:1000]
