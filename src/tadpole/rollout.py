"""One attempt at a task: a box, an episode in it, its change, its grade, and the rows of all that.

Calibration, training and evaluation make their attempts here, so that a policy is trained on
exactly what it is measured by.
"""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tadpole.errors import SandboxDied, SandboxStartError, SandboxUnavailable
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
        A box that dies is made again with all that was done to it; where that fails, the
        attempt has outcome ``infrastructure``, and the caller makes its row again. A cancelled
        attempt has no row, but its trace is saved. Raises SandboxUnavailable, because then no
        attempt can be made.
        """
        if self._places is None:
            self._places = asyncio.Semaphore(self.concurrency)
        name = f"{stage}/{task.name}-{task.id[:8]}-{sample}"
        async with self._places:
            started = time.monotonic()
            trace, delta, grade = await self._play(task, name, sampling, stream(seed, name))
        outcome = outcome_of(
            trace.stop,
            grade.status if grade else None,
            grade is not None and grade.resolved,
            not delta,
        )
        patch = ""
        if delta:
            base = await self._base(task, delta)
            patch = self.rundir.save_patch(git_patch(base, delta), name)
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
            patch=patch,
        )
        return attempt, trace

    async def _play(
        self, task: Task, name: str, sampling: Sampling, seed: int
    ) -> tuple[Trace, tuple[FileChange, ...], Grade | None]:
        try:
            spec = await self.store.spec(task)
            sandbox = await RecoveringSandbox.begin(lambda: self.engine.start(spec))
        except SandboxUnavailable:
            raise
        except (SandboxStartError, SandboxDied) as error:
            return self._unstarted(task, seed, str(error)), (), None
        delta: tuple[FileChange, ...] = ()
        left_out: tuple[LeftOut, ...] = ()
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
                    delta, left_out = await self._recorded(task, sandbox)
                except SandboxDied as error:  # its steps are evidence, its tree is gone
                    lost = {"stop": StopReason.TOOL_ERROR, "error": str(error)}
                    trace = trace.model_copy(update=lost)
        finally:
            await sandbox.close()
        trace = trace.model_copy(update={"recoveries": sandbox.recoveries})
        if not STOP_POLICY[trace.stop].grade:
            return trace, delta, None
        begun = time.monotonic()
        grade = _told(await self.grader.grade(task, delta), left_out)
        self.seconds_grading += time.monotonic() - begun
        return trace, delta, grade

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

    async def _recorded(
        self, task: Task, sandbox: Sandbox
    ) -> tuple[tuple[FileChange, ...], tuple[LeftOut, ...]]:
        """What a patch holds of a change (what is graded is what is recorded), and what not."""
        delta, left_out = await sandbox.delta(), sandbox.left_out
        if not delta and not left_out:
            return (), ()
        tree = await self.store.tree(task)

        def read(path: str) -> FileChange | None:
            return file_of(tree, path)

        told = await asyncio.to_thread(worth_telling, left_out, delta, read)
        return await asyncio.to_thread(without_ignored, delta, read), told

    async def _base(self, task: Task, delta: tuple[FileChange, ...]) -> dict[str, FileChange]:
        """The start tree's versions of the files that ``delta`` touches."""
        tree = await self.store.tree(task)
        found = (file_of(tree, change.path) for change in delta)
        return {file.path: file for file in found if file is not None}


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
