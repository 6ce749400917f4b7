"""Advantages of a batch of verl's: ours, per group, on the rows in verl's order. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tadpole.rl.groups import learned_advantages
from tadpole.settings import TrainConfig
from tadpole.trace import Attempt


@dataclass(frozen=True)
class Episode:
    """One row of a batch: the group that it was drawn for, and the attempt that it came from."""

    group: str
    attempt: Attempt | None  # None: padding of verl's


def advantages_of(
    rows: Sequence[Episode], train: TrainConfig, *, update: int, seed: int
) -> list[float]:
    """One number a row: 0 for padding, and for a group whose raw rewards do not differ.

    Shaped rewards, deviation of the population (verl's own takes that of the sample).
    """
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if row.attempt is not None:
            groups.setdefault(row.group, []).append(index)
    rng = np.random.default_rng([seed, update])
    found = [0.0] * len(rows)
    for members in groups.values():
        attempts = [attempt for index in members if (attempt := rows[index].attempt) is not None]
        advantages = learned_advantages(
            [float(attempt.reward or 0.0) for attempt in attempts],
            [attempt.generated_tokens for attempt in attempts],
            train,
            update=update,
            rng=rng,
        )
        if advantages is not None:
            for index, advantage in zip(members, advantages, strict=True):
                found[index] = float(advantage)
    return found
