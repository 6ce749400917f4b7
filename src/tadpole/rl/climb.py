"""One climb: rollouts of the policy and updates of it, to the last update.

With ``max_lag`` 0 they alternate, and every token is trained on by the policy that sampled it;
else they overlap as :mod:`tadpole.rl.scheduler` says. Each update leaves a row; every attempt
leaves a row, a trace and a patch. After a crash the climb goes on from its newest checkpoint:
attempts that those very weights had finished are used again, updates after it are made again.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tadpole.errors import TrainerError
from tadpole.models.loading import first_not_finite
from tadpole.outcome import OUTCOME_POLICY
from tadpole.protocols import Sampling, TrainedPolicy
from tadpole.rl.batch import Sample
from tadpole.rl.checkpoint import CheckpointState, checkpoints, read_state, save_checkpoint
from tadpole.rl.groups import learned_advantages
from tadpole.rl.learner import Learner, UpdateStats
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.rl.scheduler import Batch, Scheduler
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.settings import TrainConfig
from tadpole.task import Task
from tadpole.trace import Attempt, Tokens, Trace

ROLLOUTS = "rollouts"
RETRIES = 2

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
    """A climb in a run directory. ``base`` names the weights that it starts from."""

    rollout: Rollout
    policy: TrainedPolicy
    learner: Learner
    tokenizer: Any
    rundir: RunDir
    settings: TrainConfig
    sampling: Sampling
    seed: int
    base: str

    async def run(self, tasks: Sequence[Task], progress: Callable[[UpdateRow], None]) -> Path:
        """Climb to the last update; the final checkpoint's directory.

        Raises TrainerError where there is nothing to train on or an update is refused.
        """
        if not tasks:
            raise TrainerError(
                "no task to train on: calibrate more tasks (--tasks.count), or widen the band "
                "(--calibrate.low, --calibrate.high)"
            )
        root = self.rundir.directory("checkpoints")
        done = await self._resume(root)
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
            row = await self._update(batch)
            fingerprint = f"{self.base}+{update}.{self._incarnation}"
            await self.policy.renew(fingerprint, update)
            self._begun, self._graded = time.monotonic(), self.rollout.seconds_grading
            # The row first: a kill in between makes the update, and its row, again.
            self.rundir.append(TABLE, row)
            if update == s.updates or update % s.checkpoint_every == 0:
                state = CheckpointState(update=update, fingerprint=fingerprint)
                save_checkpoint(root, self.learner.model, self.tokenizer, self.learner, state)
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

    async def _resume(self, root: Path) -> int:
        """Take up the newest checkpoint; how many updates it has."""
        found = checkpoints(root)
        # Updates after the checkpoint are made again by other weights: they need other names.
        self._incarnation = len({row.policy for row in self.rundir.rows(ROLLOUTS, Attempt)})
        if not found:
            await self.policy.renew(self.base, 0)
            return 0
        state = read_state(found[-1])
        load_weights(self.learner.model, found[-1])
        if state.update < self.settings.updates:
            self.learner.load(found[-1] / "optimizer.pt")
        await self.policy.renew(state.fingerprint, state.update)
        return state.update

    def _plan(self, update: int, tasks: Sequence[Task]) -> list[Owed]:
        """The episodes of an update, group by group."""
        chosen = pick_tasks(tasks, self.settings.groups, update, self.seed)
        known = self._known(update)
        return [
            Owed(update, task, sample, known.get((task.id, sample)))
            for task in chosen
            for sample in range(self.settings.group_size)
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
        for row in self.rundir.rows(ROLLOUTS, Attempt):
            mine = row.policy == self.policy.fingerprint and f"/{_stage(update)}/" in row.trace
            if mine and OUTCOME_POLICY[row.outcome].trust:
                # Later turns may be of weights that the crash took away.
                trace = self.rundir.load_trace(row.trace) if self.settings.max_lag else None
                if trace is None or max(trace.tokens.versions) <= self.policy.version:
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
        samples, solved, dropped = self._samples(update, groups)
        if not self.settings.max_lag:
            self.policy.rest()  # the update needs the memory
        stats = await asyncio.to_thread(self.learner.update, samples) if samples else None
        return _row(
            update,
            episodes,
            stats,
            groups=len(groups),
            solved=solved,
            dropped=dropped,
            invalid=len(made) - len(episodes),
            lag=max((update - 1 - _oldest(sample.tokens) for sample in samples), default=0),
            seconds=(
                rolled - self._begun,
                self.rollout.seconds_grading - self._graded,
                time.monotonic() - rolled,
            ),
        )

    def _fresh(self, update: int, episode: Episode | None) -> Episode | None:
        """The episode, unless a token of it is older than the bound (an engine that was late)."""
        if episode is None or not any(episode[1].tokens.loss_mask):
            return episode
        lag = update - 1 - _oldest(episode[1].tokens)
        return episode if lag <= self.settings.max_lag else None

    def _samples(
        self, update: int, groups: Sequence[Sequence[Episode]]
    ) -> tuple[list[Sample], int, int]:
        """(samples, groups that are all solved, groups without signal)."""
        rng = np.random.default_rng([self.seed, update])
        samples, solved, dropped = [], 0, 0
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
            samples += [
                Sample(trace.tokens, float(advantage))
                for advantage, (_, trace) in zip(advantages, group, strict=True)
            ]
        return samples, solved, dropped


def pick_tasks(tasks: Sequence[Task], count: int, update: int, seed: int) -> list[Task]:
    """The tasks of one update: all tasks in a seeded order, then all again in another one.

    Depends on (seed, update) alone, so that a resumed climb meets the same tasks. No task comes
    twice in one update unless there are fewer than ``count``.
    """
    ordered = sorted(tasks, key=lambda task: task.name)
    chosen: list[Task] = []
    position = (update - 1) * count
    while len(chosen) < min(count, len(ordered)):
        lap, place = divmod(position, len(ordered))
        order = ordered[:]
        random.Random(f"{seed} lap {lap}").shuffle(order)
        if order[place] not in chosen:
            chosen.append(order[place])
        position += 1
    return chosen


def _stage(update: int) -> str:
    return f"train-{update:04d}"


def _oldest(tokens: Tokens) -> int:
    """The lowest version that sampled any of the trainable tokens."""
    pairs = zip(tokens.versions, tokens.loss_mask, strict=True)
    return min(version for version, trained in pairs if trained)


def load_weights(model: Any, checkpoint: Path) -> None:
    """Replace a model's weights in place by those of a checkpoint of the same shape.

    Raises TrainerError where they hold NaN or infinity.
    """
    fresh = type(model).from_pretrained(checkpoint, dtype=model.dtype)
    wrong = first_not_finite(fresh)
    if wrong is not None:
        raise TrainerError(
            f"the weights in {checkpoint} are not all finite, first {wrong}: remove that directory "
            "to go on from the checkpoint before it"
        )
    model.load_state_dict(fresh.state_dict())


def _row(
    update: int,
    episodes: Sequence[Episode],
    stats: UpdateStats | None,
    *,
    groups: int,
    solved: int,
    dropped: int,
    invalid: int,
    lag: int,
    seconds: tuple[float, float, float],
) -> UpdateRow:
    rewards = [float(attempt.reward or 0.0) for attempt, _ in episodes]
    return UpdateRow(
        update=update,
        episodes=len(episodes),
        invalid=invalid,
        mean_reward=float(np.mean(rewards)) if rewards else None,
        std_reward=float(np.std(rewards)) if rewards else None,
        groups=groups,
        solved_groups=solved,
        dropped_groups=dropped,
        tokens=stats.tokens if stats else 0,
        dropped_share=stats.dropped_share if stats else 0.0,
        loss=stats.loss if stats else None,
        grad_norm=stats.grad_norm if stats else None,
        mean_abs_pq=stats.mean_abs_pq if stats else None,
        max_abs_pq=stats.max_abs_pq if stats else None,
        lag_max=lag,
        entropy=stats.entropy if stats else None,
        mean_turns=float(np.mean([a.turns for a, _ in episodes])) if episodes else 0.0,
        mean_generated=float(np.mean([a.generated_tokens for a, _ in episodes]))
        if episodes
        else 0.0,
        stops=dict(Counter(attempt.stop for attempt, _ in episodes)),
        seconds_rollout=seconds[0],
        seconds_grade=seconds[1],
        seconds_update=seconds[2],
    )
