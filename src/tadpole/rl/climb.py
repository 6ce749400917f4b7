"""One climb: rollouts of the policy and updates of it, to the last update.

With ``max_lag`` 0 they alternate, and every token is trained on by the policy that sampled it;
else they overlap as :mod:`tadpole.rl.scheduler` says. Each update leaves a row; every attempt
leaves a row, a trace and a patch. After a crash the climb goes on from its newest checkpoint:
attempts that those very weights had finished are used again, updates after it are made again.

Where there are validation tasks each checkpoint is evaluated on them as soon as it is made, by
the policy in force. So the best is known at any time, and is never pruned.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tadpole.errors import TrainerError
from tadpole.outcome import OUTCOME_POLICY
from tadpole.protocols import Sampling, TrainedPolicy
from tadpole.rl.batch import Sample
from tadpole.rl.checkpoint import (
    OPTIMIZER,
    CheckpointState,
    checkpoints,
    load_weights,
    prune,
    read_state,
    save_checkpoint,
)
from tadpole.rl.dealing import pick_tasks
from tadpole.rl.groups import learned_advantages
from tadpole.rl.learner import Learner
from tadpole.rl.metrics import ROLLOUTS, TABLE, UpdateRow
from tadpole.rl.provenance import digest
from tadpole.rl.samples import contexts, lags, versions
from tadpole.rl.scheduler import Batch, Scheduler
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.settings import ProfileName, TrainConfig
from tadpole.task import Task
from tadpole.trace import Attempt, Trace
from tadpole.tries import RETRIES

MOST_SKIPS = 2  # updates in a row that may be skipped

Episode = tuple[Attempt, Trace]


@dataclass(frozen=True)
class Owed:
    """One episode that an update owes. ``known`` was finished before a crash."""

    update: int
    task: Task
    sample: int
    known: Attempt | None = None


@dataclass
class Climb:
    """A climb in a run directory. ``base`` names the weights that it starts from.

    ``validate`` evaluates the policy in force, unless that is done, and returns the fingerprint
    of the best checkpoint so far.
    """

    rollout: Rollout
    policy: TrainedPolicy
    learner: Learner
    tokenizer: Any
    rundir: RunDir
    settings: TrainConfig
    sampling: Sampling
    seed: int
    base: str
    validate: Callable[[], Awaitable[str]] | None = None
    profile: ProfileName | None = None  # that the policy plays in; None: not to be recorded
    say: Callable[[str], None] = lambda line: None  # what a person should know of a resumption

    async def run(self, tasks: Sequence[Task], progress: Callable[[UpdateRow], None]) -> Path:
        """Climb to the last update; the final checkpoint's directory.

        Raises TrainerError where there is nothing to train on or an update is refused.
        """
        if not tasks:
            raise TrainerError(
                "no task to train on: a run in another --run.dir with more tasks (--tasks.count) "
                "or a wider band (--calibrate.low, --calibrate.high) has some"
            )
        root = self.rundir.directory("checkpoints")
        self._skips = 0
        done = await self._resume(root)
        if done:
            await self._look(root)  # which a kill may have cut short
        if done < self.settings.updates:
            await self._climb(done, tasks, progress, root)
        return checkpoints(root)[-1]

    async def _climb(
        self,
        done: int,
        tasks: Sequence[Task],
        progress: Callable[[UpdateRow], None],
        root: Path,
    ) -> None:
        s = self.settings

        async def learn(update: int, batch: Batch[Owed, Episode]) -> None:
            fingerprint = f"{self.base}+{update}.{self._incarnation}"
            row = (await self._update(batch)).model_copy(update={"fingerprint": fingerprint})
            await self.policy.renew(fingerprint, update)
            self._begun, self._graded = time.monotonic(), self.rollout.seconds_grading
            # The row first: a kill in between makes the update, and its row, again.
            self.rundir.append(TABLE, row)
            if update == s.updates or update % s.checkpoint_every == 0:
                made = checkpoints(root)
                parent = read_state(made[-1]).weights if made else self.base
                state = CheckpointState(
                    update=update,
                    fingerprint=fingerprint,
                    parent=parent,
                    profile=self.profile,
                )
                save_checkpoint(root, self.learner.model, self.tokenizer, self.learner, state)
                await self._look(root)
            progress(row)

        self._begun, self._graded = time.monotonic(), self.rollout.seconds_grading
        scheduler = Scheduler(
            plan=lambda update: self._plan(update, tasks),
            attempt=self._attempt,
            learn=learn,
            max_lag=s.max_lag,
            # Without overlap the rollout's own bound is all that is needed.
            places=self.rollout.concurrency if s.max_lag else s.groups * s.group_size,
            patience=s.batch_seconds,
            retries=RETRIES,
        )
        await scheduler.run(done + 1, s.updates)

    async def _look(self, root: Path) -> None:
        """Validate the newest checkpoint, whose weights are in force, and prune the others."""
        best = () if self.validate is None else (await self.validate(),)
        prune(root, self.settings.keep_checkpoints, best)
        if self.validate is not None:  # whose time is no rollout's
            self._begun, self._graded = time.monotonic(), self.rollout.seconds_grading

    async def _resume(self, root: Path) -> int:
        """Take up the newest checkpoint; how many updates it has."""
        found, before = checkpoints(root), self.rundir.rows(ROLLOUTS, Attempt)
        # Updates after the checkpoint are made again by other weights: they need other names.
        self._incarnation = len({row.policy for row in before})
        state = CheckpointState(update=0, fingerprint=self.base)
        if found:
            state = read_state(found[-1])
            load_weights(self.learner.model, found[-1])
            if state.update < self.settings.updates:
                self._take_moments(found[-1] / OPTIMIZER)
        await self.policy.renew(state.fingerprint, state.update)
        # What other weights have finished is of no use, and no later ones have these names.
        self._finished = [row for row in before if row.policy == state.fingerprint]
        return state.update

    def _take_moments(self, path: Path) -> None:
        """The optimizer's state. Where a checkpoint is not the newest that was made it has none."""
        if path.exists():
            self.learner.load(path)
        else:
            self.say(f"{path} is gone: the optimizer goes on with new moments")

    def _plan(self, update: int, tasks: Sequence[Task]) -> list[Owed]:
        """The episodes of an update, group by group."""
        size = self.settings.group_size
        chosen = pick_tasks(tasks, self.settings.groups, update, self.seed)
        known = self._known(update)
        # Where updates overlap, one policy may begin a task for several of them: an attempt is
        # known by task, policy and sample.
        first = (update - 1) * size if self.settings.max_lag else 0
        return [
            Owed(update, task, sample, known.get((task.id, sample)))
            for task in chosen
            for sample in range(first, first + size)
        ]

    async def _attempt(self, owed: Owed) -> Episode | None:
        """Make one episode; None where infrastructure broke it."""
        if owed.known is not None:
            return owed.known, self.rundir.load_trace(owed.known.trace)
        attempt, trace = await self.rollout.attempt(
            owed.task,
            owed.sample,
            sampling=self.sampling,
            stage=_stage(owed.update),
            seed=self.seed,
        )
        self.rundir.append(ROLLOUTS, attempt)
        return (attempt, trace) if OUTCOME_POLICY[attempt.outcome].trust else None

    def _known(self, update: int) -> dict[tuple[str, int], Attempt]:
        """Attempts of the very weights in force that a run before a crash has finished."""
        found = {}
        for row in self._finished:
            mine = row.policy == self.policy.fingerprint and f"/{_stage(update)}/" in row.trace
            if mine and OUTCOME_POLICY[row.outcome].trust:
                # Later turns may be of weights that the crash took away.
                trace = self.rundir.load_trace(row.trace) if self.settings.max_lag else None
                if trace is None or versions(trace)[1] <= self.policy.version:
                    found[row.task, row.sample] = row
        return found

    async def _update(self, batch: Batch[Owed, Episode]) -> UpdateRow:
        """Train on what a batch holds. Raises TrainerError where it holds nothing."""
        rolled, update, size = time.monotonic(), batch.update, self.settings.group_size
        made = [self._fresh(update, result) for result in batch.results]
        groups = [[e for e in made[i : i + size] if e] for i in range(0, len(made), size)]
        episodes = [episode for group in groups for episode in group]
        if not episodes:
            raise TrainerError(
                f"none of the {len(made)} episodes of update {update} could be used: their boxes "
                "or the policy's engine failed (tadpole doctor checks the boxes); the same "
                "command goes on from here"
            )
        learned, solved, dropped = self._learned(update, groups)
        samples = [
            Sample(tokens, advantage)
            for (_, trace), advantage in learned
            for tokens in contexts(trace)
        ]
        if not self.settings.max_lag:
            await self.policy.rest()  # the update needs the memory
        stats = await asyncio.to_thread(self.learner.update, samples) if samples else None
        self._skips = self._skips + 1 if stats is not None and stats.skipped else 0
        if stats is not None and self._skips > MOST_SKIPS:
            raise TrainerError(
                f"{self._skips} updates in a row were skipped, the last because "
                f"{stats.skipped}: {self._instead()}"
            )
        row = UpdateRow.of([attempt for attempt, _ in episodes], stats, update=update)
        lagging = lags((trace for (_, trace), _ in learned), update)
        return row.model_copy(
            update={
                "invalid": len(made) - len(episodes),
                "groups": len(groups),
                "solved_groups": solved,
                "dropped_groups": dropped,
                "lag_max": max(lagging, default=0),
                "lag_mean": sum(lagging) / len(lagging) if lagging else None,
                "traces": tuple(attempt.trace for (attempt, _), _ in learned),
                "digest": digest(trace for (_, trace), _ in learned),
                "seconds_rollout": rolled - self._begun,
                "seconds_grade": self.rollout.seconds_grading - self._graded,
                "seconds_update": time.monotonic() - rolled,
            }
        )

    def _instead(self) -> str:
        """What can be done about a climb that stands still; its settings are settled."""
        elsewhere = "a lower --train.lr takes another --run.dir"
        made = checkpoints(self.rundir.path / "checkpoints")
        return f"remove {made[-1]} to go on from before it; {elsewhere}" if made else elsewhere

    def _fresh(self, update: int, episode: Episode | None) -> Episode | None:
        """The episode, unless a token of it is older than the bound (an engine that was late)."""
        if episode is None:
            return None
        lag = update - 1 - versions(episode[1])[0]
        return episode if lag <= self.settings.max_lag else None

    def _learned(
        self, update: int, groups: Sequence[Sequence[Episode]]
    ) -> tuple[list[tuple[Episode, float]], int, int]:
        """(episodes to train on and their advantages, groups all solved, groups without signal)."""
        rng = np.random.default_rng([self.seed, update])
        learned, solved, dropped = [], 0, 0
        for group in groups:
            raws = [float(attempt.reward or 0.0) for attempt, _ in group]
            solved += bool(raws) and min(raws) == 1.0
            advantages = learned_advantages(
                raws,
                [attempt.generated_tokens for attempt, _ in group],
                self.settings,
                update=update,
                rng=rng,
            )
            if advantages is None:
                dropped += 1
                continue
            learned += list(zip(group, map(float, advantages), strict=True))
        return learned, solved, dropped


def _stage(update: int) -> str:
    return f"train-{update:04d}"
