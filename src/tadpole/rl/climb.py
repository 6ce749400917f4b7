"""One climb: rollouts of the current policy, then one update, again and again.

Rollout and update alternate, so every token is trained on by the policy that sampled it (lag 0).
Each update leaves a row; every attempt leaves a row, a trace and a patch. After a crash the
climb goes on from its newest checkpoint: attempts that those very weights had finished are used
again, updates after it are made again.
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
from tadpole.models.inprocess import InProcessPolicy
from tadpole.outcome import OUTCOME_POLICY
from tadpole.protocols import Sampling
from tadpole.rl.advantage import group_advantages, has_signal
from tadpole.rl.batch import Sample
from tadpole.rl.checkpoint import CheckpointState, checkpoints, read_state, save_checkpoint
from tadpole.rl.learner import Learner, UpdateStats
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.rl.reward import shaped_reward
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.settings import TrainConfig
from tadpole.task import Task
from tadpole.trace import Attempt, Trace

ROLLOUTS = "rollouts"
RETRIES = 2

Episode = tuple[Attempt, Trace]


@dataclass
class Climb:
    """A climb in a run directory. ``base`` names the weights that it starts from."""

    rollout: Rollout
    policy: InProcessPolicy
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
        update = self._resume(root)
        saved = checkpoints(root)[-1] if update else None
        while update < self.settings.updates:
            update += 1
            row = await self._update(update, tasks)
            fingerprint = f"{self.base}+{update}.{self._incarnation}"
            self.policy.refresh(fingerprint, update)
            # The row first: a kill in between makes the update, and its row, again.
            self.rundir.append(TABLE, row)
            last = update == self.settings.updates
            if last or update % self.settings.checkpoint_every == 0:
                state = CheckpointState(update=update, fingerprint=fingerprint)
                saved = save_checkpoint(
                    root, self.learner.model, self.tokenizer, self.learner, state
                )
            progress(row)
        assert saved is not None
        return saved

    def _resume(self, root: Path) -> int:
        """Take up the newest checkpoint; how many updates it has."""
        found = checkpoints(root)
        # Updates after the checkpoint are made again by other weights: they need other names.
        self._incarnation = len({row.policy for row in self.rundir.rows(ROLLOUTS, Attempt)})
        if not found:
            self.policy.refresh(self.base, 0)
            return 0
        state = read_state(found[-1])
        load_weights(self.learner.model, found[-1])
        if state.update < self.settings.updates:
            self.learner.load(found[-1] / "optimizer.pt")
        self.policy.refresh(state.fingerprint, state.update)
        return state.update

    async def _update(self, update: int, tasks: Sequence[Task]) -> UpdateRow:
        started, graded = time.monotonic(), self.rollout.seconds_grading
        chosen = pick_tasks(tasks, self.settings.groups, update, self.seed)
        known = self._known()
        groups = await asyncio.gather(*(self._group(update, task, known) for task in chosen))
        rolled = time.monotonic()
        samples, solved, dropped = self._samples(update, groups)
        self.policy.rest()  # the update needs the memory
        stats = await asyncio.to_thread(self.learner.update, samples) if samples else None
        episodes = [episode for group in groups for episode in group]
        return _row(
            update,
            episodes,
            stats,
            groups=len(groups),
            solved=solved,
            dropped=dropped,
            invalid=self.settings.group_size * len(groups) - len(episodes),
            seconds=(
                rolled - started,
                self.rollout.seconds_grading - graded,
                time.monotonic() - rolled,
            ),
        )

    async def _group(
        self, update: int, task: Task, known: dict[tuple[str, int], Attempt]
    ) -> list[Episode]:
        """One task's episodes; those that infrastructure broke to the end are left out."""

        async def one(sample: int) -> Episode | None:
            if (task.id, sample) in known:
                row = known[task.id, sample]
                return row, self.rundir.load_trace(row.trace)
            for _ in range(RETRIES + 1):
                attempt, trace = await self.rollout.attempt(
                    task,
                    sample,
                    sampling=self.sampling,
                    stage=f"train-{update:04d}",
                    seed=self.seed,
                )
                self.rundir.append(ROLLOUTS, attempt)
                if OUTCOME_POLICY[attempt.outcome].trust:
                    return attempt, trace
            return None

        made = await asyncio.gather(*(one(n) for n in range(self.settings.group_size)))
        return [episode for episode in made if episode is not None]

    def _known(self) -> dict[tuple[str, int], Attempt]:
        """Attempts of the very weights in force that a run before a crash has finished."""
        rows = self.rundir.rows(ROLLOUTS, Attempt)
        return {
            (row.task, row.sample): row
            for row in rows
            if row.policy == self.policy.fingerprint and OUTCOME_POLICY[row.outcome].trust
        }

    def _samples(
        self, update: int, groups: Sequence[Sequence[Episode]]
    ) -> tuple[list[Sample], int, int]:
        """(samples, groups that are all solved, groups without signal)."""
        s = self.settings
        shaping = s.length_from_update and update >= s.length_from_update
        rng = np.random.default_rng([self.seed, update])
        samples, solved, dropped = [], 0, 0
        for group in groups:
            raws = [float(attempt.reward or 0.0) for attempt, _ in group]
            solved += bool(raws) and min(raws) == 1.0
            if not has_signal(raws):
                dropped += 1
                continue
            shaped = [
                shaped_reward(
                    raw,
                    attempt.generated_tokens,
                    free=s.length_free_tokens,
                    alpha=s.length_alpha if shaping else 0.0,
                    floor=s.length_floor,
                )
                for raw, (attempt, _) in zip(raws, group, strict=True)
            ]
            if s.shuffle_rewards:
                shaped = list(rng.permutation(shaped))
            advantages = group_advantages(shaped, s.advantage_eps)
            samples += [
                Sample(tokens, float(advantage))
                for advantage, (_, trace) in zip(advantages, group, strict=True)
                for tokens in trace.segments
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


def load_weights(model: Any, checkpoint: Path) -> None:
    """Replace a model's weights in place by those of a checkpoint of the same shape."""
    fresh = type(model).from_pretrained(checkpoint, dtype=model.dtype)
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
