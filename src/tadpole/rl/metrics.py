"""One row per optimizer update: what was learned from, and what it did to the policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field

from tadpole.outcome import StopReason
from tadpole.trace import Attempt, Record

if TYPE_CHECKING:  # a report needs no torch
    from tadpole.rl.learner import UpdateStats

TABLE = "updates"
ROLLOUTS = "rollouts"  # the attempts that updates are made of


class UpdateRow(Record):
    """The metrics of one update. Shares are 0..1, times seconds, probabilities not logs."""

    format: Literal[1] = 1
    update: int  # 1 for the first
    episodes: int  # that were used
    invalid: int = 0  # broken by infrastructure, not used
    mean_reward: float | None  # raw task reward over the episodes; None where there were none
    std_reward: float | None = None
    groups: int = 0
    solved_groups: int = 0  # every episode solved: no signal
    dropped_groups: int = 0  # no variance in the raw rewards, solved or not
    tokens: int = 0  # trainable tokens, kept or dropped
    dropped_share: float = 0.0  # of the trainable tokens, by the trust region
    loss: float | None = None  # None where every group was dropped and no step was taken
    grad_norm: float | None = None
    skipped: str = ""  # why the step was not taken although there was something to train on
    mean_abs_pq: float | None = None  # |p - q| over the trainable tokens
    max_abs_pq: float | None = None
    lag_max: int = 0  # updates by which the oldest trained token lags
    lag_mean: float | None = None  # the same over all trained tokens; None where there are none
    stale_groups: int = 0  # thrown away because they would have lagged too far
    broken_groups: int = 0  # thrown away because infrastructure broke one of their episodes
    fingerprint: str = ""  # of the weights that it made
    traces: tuple[str, ...] = ()  # of the episodes that were trained on
    digest: str = ""  # over their tokens, see tadpole.rl.provenance
    entropy: float | None = None  # nats per trainable token
    mean_turns: float = 0.0
    mean_generated: float = 0.0  # tokens per episode
    stops: dict[StopReason, int] = Field(default_factory=dict)
    seconds_rollout: float = 0.0
    seconds_grade: float = 0.0
    seconds_update: float = 0.0
    seconds_model: float = 0.0  # of these, in forward, backward and optimizer

    @classmethod
    def of(cls, attempts: Sequence[Attempt], stats: "UpdateStats | None", *, update: int) -> Self:
        """The figures of the attempts that were used and of the step; ``stats`` None: no step."""
        rewards = [float(attempt.reward or 0.0) for attempt in attempts]
        of_step = {} if stats is None else asdict(stats)
        return cls(
            update=update,
            episodes=len(attempts),
            mean_reward=float(np.mean(rewards)) if rewards else None,
            std_reward=float(np.std(rewards)) if rewards else None,
            mean_turns=float(np.mean([a.turns for a in attempts])) if attempts else 0.0,
            mean_generated=float(np.mean([a.generated_tokens for a in attempts]))
            if attempts
            else 0.0,
            stops=dict(Counter(attempt.stop for attempt in attempts)),
            **of_step,
        )
