"""From the episodes of one task to what is trained on: filter, shaping, advantage. Pure.

G is the number of episodes of one task that may be used.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tadpole.rl.advantage import group_advantages, has_signal
from tadpole.rl.reward import shaped_reward
from tadpole.settings import TrainConfig


def learned_advantages(
    raw_G: Sequence[float],
    generated_G: Sequence[int],
    settings: TrainConfig,
    *,
    update: int,
    rng: np.random.Generator,
) -> NDArray[np.float64] | None:
    """The advantage of each episode, or None for a group without signal.

    Whether there is signal is decided on the raw rewards; the advantages are those of the shaped
    ones. ``generated_G`` are the tokens that the policy generated. ``rng`` is used by the control
    (``shuffle_rewards``) only.
    """
    if not has_signal(raw_G):
        return None
    s = settings
    shaping = s.length_from_update and update >= s.length_from_update
    shaped_G = [
        shaped_reward(
            raw,
            generated,
            free=s.length_free_tokens,
            alpha=s.length_alpha if shaping else 0.0,
            floor=s.length_floor,
        )
        for raw, generated in zip(raw_G, generated_G, strict=True)
    ]
    if s.shuffle_rewards:
        shaped_G = list(rng.permutation(shaped_G))
    return group_advantages(shaped_G, s.advantage_eps)
