"""One run of a task's tests against a change, in a fresh box.

Guards against what :mod:`tadpole.grading.bootstrap` and :mod:`tadpole.grading.report` do; this
module only puts the pieces in order: the agent's files first, the tests over them, then the run.
"""

import dataclasses
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from tadpole.errors import GraderError
from tadpole.grading.report import Job, Verdict, command, judge, must_fail_names
from tadpole.outcome import GradeStatus
from tadpole.protocols import ExecResult, Sandbox, SandboxEngine, SandboxSpec
from tadpole.task import FileChange, Task

WALL = 4  # deadline by the clock: this many times the processor time, and a start
Ran = tuple[ExecResult, bytes | None]  # how a run ended, and its report
_OPTIONS = ("--maxfail=0", "--tb=no", "--color=no", "-p", "no:cacheprovider", "-q")


class GradingStore(Protocol):
    """What grading needs of :class:`tadpole.repos.store.Store`."""

    async def spec(self, task: Task) -> SandboxSpec:
        """The box in which an agent starts at this task."""
        ...

    async def pristine(self, task: Task) -> SandboxSpec:
        """The box over the tree that the start of this task differs from."""
        ...

    def python(self, of: Task, /) -> str:
        """Path of the interpreter inside that box."""
        ...


class NoLayout(Exception):
    """Files of a change that cannot stand in one tree with those that were left out of it."""


_TAKEN = (FileExistsError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True)
class Runner:
    """Runs tests in boxes of ``engine``, a fresh one for each run."""

    engine: SandboxEngine
    store: GradingStore

    async def run(
        self,
        task: Task,
        spec: SandboxSpec,
        accepted: Sequence[FileChange],
        ids: Sequence[str],
        tests: Sequence[FileChange],
    ) -> Verdict:
        """Run ``ids`` with the files ``tests`` over the change ``accepted``.

        Once more where something killed it, which need not be the change's doing. Raises
        SandboxError or GraderError where it could not be told.
        """
        for _ in range(2):
            job = job_of(task, spec, ids, accepted)  # the secrets of one run
            now = [change for change in accepted if change not in job.later]
            try:
                verdict = judge(job, *await self._ran(task, spec, job, now, tests))
            except NoLayout as error:
                reason = f"the change's files cannot stand where they are: {error}"
                return Verdict(GradeStatus.GRADED, job.ids, reason)
            if not verdict.killed:
                break
        return verdict

    async def _ran(
        self,
        task: Task,
        spec: SandboxSpec,
        job: Job,
        now: Sequence[FileChange],
        tests: Sequence[FileChange],
    ) -> Ran:
        box = await self.engine.start(seeded(spec))
        try:
            try:
                await box.write(now)
            except _TAKEN as error:
                raise NoLayout(str(error)) from error
            await box.write(tests)  # after the agent's files, so that these hold
            argv = command(self.store.python(task), spec.workdir)
            result = await box.exec(argv, timeout=WALL * task.test_seconds + 10, stdin=job.text())
            return result, await _content(box, job.report)
        finally:
            await box.close()


def seeded(spec: SandboxSpec) -> SandboxSpec:
    """The box as a grading needs it: one order of sets, and paths that the job alone names."""
    env = {name: value for name, value in spec.env.items() if name != "PYTHONPATH"}
    return dataclasses.replace(spec, env={**env, "PYTHONHASHSEED": "0"})


def graded_ids(task: Task) -> tuple[str, ...]:
    """The node ids that decide, each once. Raises GraderError where there is none."""
    ids = tuple(dict.fromkeys((*task.fail_to_pass, *task.pass_to_pass)))
    if not ids:
        raise GraderError(f"task {task.name} has no tests: validate it again")
    return ids


_LOOKING = re.compile(rb"frame|\bgc\b|settrace|setprofile|ctypes|/proc|inspect|marshal")
_MAKING = re.compile(rb"(?<![.\w])compile\(|CodeType|co_filename")
_COMPARING = re.compile(rb"__eq__")


def new_to(
    what: re.Pattern[bytes], task: Task, spec: SandboxSpec, accepted: Sequence[FileChange]
) -> list[str]:
    """Changed files, as paths in the box, in which ``what`` neither was nor is in the repair."""
    gold = {change.path: change.content or b"" for change in task.gold}
    found = []
    for change in accepted:
        file = spec.tree / change.path
        before = file.read_bytes() if file.is_file() else b""
        if not what.search(before) and not what.search(gold.get(change.path, b"")):
            found.append(f"{spec.workdir}/{change.path}")
    return found


def job_of(
    task: Task,
    spec: SandboxSpec,
    ids: Sequence[str],
    accepted: Sequence[FileChange],
) -> Job:
    """What a run is told: ``ids`` over the change ``accepted``, whose settings come late."""
    search = [path for path in spec.env.get("PYTHONPATH", "").split(":") if path]
    roots = [os.path.normpath(f"{spec.workdir}/{path}") for path in task.recipe.import_paths]
    return Job(
        ids=tuple(ids),
        args=(*task.recipe.pytest_args, f"--rootdir={spec.workdir}", *_OPTIONS),
        paths=tuple(dict.fromkeys([spec.workdir, *search, *roots])),
        env={"PYTHONPATH": spec.env["PYTHONPATH"]} if search else {},
        later=[one for one in accepted if PurePosixPath(one.path).name == "pyproject.toml"],
        changed=[f"{spec.workdir}/{change.path}" for change in accepted],
        suspects=new_to(_LOOKING, task, spec, accepted),
        makers=new_to(_MAKING, task, spec, accepted),
        equals=new_to(_COMPARING, task, spec, accepted),
        seconds=max(1, math.ceil(task.test_seconds)),
        must_fail=must_fail_names(ids),
    )


async def _content(box: Sandbox, path: str) -> bytes | None:
    try:
        return await box.read(path)
    except OSError:  # removed, or replaced by something that is no file
        return None
