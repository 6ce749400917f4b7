"""One row per optimizer update: what was learned from, and what it did to the policy."""

from typing import Literal

from pydantic import Field

from tadpole.outcome import StopReason
from tadpole.trace import Record

TABLE = "updates"


class UpdateRow(Record):
    """The metrics of one update. Shares are 0..1, times seconds, probabilities not logs."""

    format: Literal[1] = 1
    update: int  # 1 for the first
    episodes: int  # that were used
    invalid: int = 0  # broken by infrastructure, not used
    mean_reward: float | None  # raw task reward over the episodes; None where there were none
    std_reward: float | None = None
    groups: int
    solved_groups: int = 0  # every episode solved: no signal
    dropped_groups: int = 0  # no variance in the raw rewards, solved or not
    tokens: int  # trainable tokens, kept or dropped
    dropped_share: float = 0.0  # of the trainable tokens, by the trust region
    loss: float | None = None  # None where every group was dropped and no step was taken
    grad_norm: float | None = None
    mean_abs_pq: float | None = None  # |p - q| over the trainable tokens
    max_abs_pq: float | None = None
    lag_max: int = 0  # updates between the oldest sampled token and this update
    entropy: float | None = None  # nats per trainable token
    mean_turns: float = 0.0
    mean_generated: float = 0.0  # tokens per episode
    stops: dict[StopReason, int] = Field(default_factory=dict)
    seconds_rollout: float = 0.0
    seconds_grade: float = 0.0
    seconds_update: float = 0.0
