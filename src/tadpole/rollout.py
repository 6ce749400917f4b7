"""One attempt at a task: a box, an episode in it, its change, its grade, and the rows of all that.

Calibration, training and evaluation make their attempts here, so that a policy is trained on
exactly what it is measured by.
"""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tadpole.errors import (
    GraderError,
    SandboxDied,
    SandboxStartError,
    SandboxUnavailable,
    UsageError,
)
from tadpole.grading.patch import file_of, git_patch, without_ignored, worth_telling
from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.loop import run_episode
from tadpole.leaf.recovery import RecoveringSandbox
from tadpole.outcome import STOP_POLICY, GradeStatus, StopReason, outcome_of
from tadpole.protocols import (
    ChatModel,
    Grader,
    LeftOut,
    Sampling,
    Sandbox,
    SandboxEngine,
    TokenPolicy,
)
from tadpole.repos.store import Store
from tadpole.rl.reward import raw_reward
from tadpole.rundir import RunDir
from tadpole.settings import LeafConfig
from tadpole.task import FileChange, Task
from tadpole.trace import Attempt, Grade, Trace


@dataclass
class Rollout:
    """What an attempt needs, besides the task. ``concurrency`` bounds the open boxes."""

    engine: SandboxEngine
    store: Store
    grader: Grader
    policy: TokenPolicy | ChatModel
    dialogue: Dialogue | ChatDialogue  # the one that goes with the policy
    settings: LeafConfig
    rundir: RunDir
    concurrency: int = 4
    truncated_reward: float = 0.5
    seconds_grading: float = 0.0  # summed over attempts
    _places: asyncio.Semaphore | None = field(default=None, repr=False)

    async def attempt(
        self, task: Task, sample: int, *, sampling: Sampling, stage: str, seed: int
    ) -> tuple[Attempt, Trace]:
        """Make one attempt; trace and patch are saved in the run directory before it returns.

        ``stage`` and ``sample`` name the files; with ``seed`` they fix the random stream.
        A box that dies is made again with all that was done to it; where that fails, or what was
        done cannot be recorded, the trace says why, the attempt has outcome ``infrastructure``,
        and the caller makes its row again. A cancelled
        attempt has no row, but its trace is saved. Raises SandboxUnavailable, because then no
        attempt can be made.
        """
        if self._places is None:
            self._places = asyncio.Semaphore(self.concurrency)
        name = f"{stage}/{task.name}-{task.id[:8]}-{sample}"
        async with self._places:
            started = time.monotonic()
            trace, work, grade = await self._play(task, name, sampling, stream(seed, name))
        outcome = outcome_of(
            trace.stop,
            grade.status if grade else None,
            grade is not None and grade.resolved,
            not work.delta,
        )
        attempt = Attempt(
            task=task.id,
            task_name=task.name,
            policy=trace.policy,
            sample=sample,
            stop=trace.stop,
            outcome=outcome,
            reward=raw_reward(outcome, trace.stop, self.truncated_reward),
            turns=len(trace.turns),
            generated_tokens=trace.generated_tokens,
            seconds=time.monotonic() - started,
            grade=grade,
            trace=self.rundir.save_trace(trace, name),
            patch=self.rundir.save_patch(work.patch, name) if work.delta else "",
        )
        return attempt, trace

    async def _play(
        self, task: Task, name: str, sampling: Sampling, seed: int
    ) -> tuple[Trace, "_Work", Grade | None]:
        work = _Work()
        try:
            spec = await self.store.spec(task)
            sandbox = await RecoveringSandbox.begin(lambda: self.engine.start(spec))
        except SandboxUnavailable:
            raise
        except (SandboxStartError, SandboxDied) as error:
            return self._unstarted(task, seed, str(error)), work, None
        try:
            trace = await run_episode(
                task_id=task.id,
                statement=task.statement,
                sandbox=sandbox,
                policy=self.policy,
                dialogue=self.dialogue,
                settings=self.settings,
                sampling=sampling,
                episode=name,
                seed=seed,
                on_cancel=lambda trace: self.rundir.save_trace(trace, name),
            )
            if STOP_POLICY[trace.stop].grade:
                try:
                    work = await self._recorded(task, sandbox)
                # Its steps are evidence; its tree is gone, or is one that no patch can tell.
                except (SandboxDied, GraderError, UsageError, OSError) as error:
                    lost = {"stop": StopReason.TOOL_ERROR, "error": str(error)}
                    trace = trace.model_copy(update=lost)
        finally:
            await sandbox.close()
        trace = trace.model_copy(update={"recoveries": sandbox.recoveries})
        if not STOP_POLICY[trace.stop].grade:
            return trace, work, None
        begun = time.monotonic()
        grade = _told(await self.grader.grade(task, work.delta), work.left_out)
        self.seconds_grading += time.monotonic() - begun
        return trace, work, grade

    def _unstarted(self, task: Task, seed: int, error: str) -> Trace:
        return Trace(
            task=task.id,
            policy=self.policy.fingerprint,
            seed=seed,
            system=self.dialogue.system,
            statement=task.statement,
            turns=(),
            stop=StopReason.TOOL_ERROR,
            error=error,
        )

    async def _recorded(self, task: Task, sandbox: Sandbox) -> "_Work":
        """What is graded is what is recorded. Raises GraderError, UsageError, OSError."""
        delta, left_out = await sandbox.delta(), sandbox.left_out
        if not delta and not left_out:
            return _Work()
        tree = await self.store.tree(task)
        return await asyncio.to_thread(_work, tree, delta, left_out)


@dataclass(frozen=True)
class _Work:
    """A change, the same as a patch, and what no patch can hold of what was done."""

    delta: tuple[FileChange, ...] = ()
    patch: bytes = b""
    left_out: tuple[LeftOut, ...] = ()


def _work(tree: Path, delta: Sequence[FileChange], left_out: Sequence[LeftOut]) -> _Work:
    def read(path: str) -> FileChange | None:
        return file_of(tree, path)

    kept = without_ignored(delta, read)
    base = {file.path: file for change in kept if (file := read(change.path)) is not None}
    return _Work(kept, git_patch(base, kept), worth_telling(left_out, delta, read))


def _told(grade: Grade, left_out: Sequence[LeftOut]) -> Grade:
    """The grade, and what of the agent's work is in no patch and so was not graded."""
    if not left_out or grade.status is GradeStatus.INVALID:
        return grade
    paths = tuple(path for one in left_out for path in one.paths[:20])
    reason = f"{grade.reason} (not in the patch: {'; '.join(map(str, left_out))})"
    return grade.model_copy(update={"dropped": (*grade.dropped, *paths), "reason": reason[:2000]})


def stream(seed: int, name: str) -> int:
    """A random stream of its own for each name, stable over machines and versions."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:6], "big")
