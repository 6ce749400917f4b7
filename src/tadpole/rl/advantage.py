"""Group-relative advantages. Pure: arrays in, arrays out.

Shapes are in the names: G is the number of trajectories of one task.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def has_signal(raw_G: ArrayLike) -> bool:
    """Whether a group is trained on: its RAW rewards differ (shaping does not revive it)."""
    rewards_G = np.asarray(raw_G, dtype=np.float64)
    return rewards_G.size > 1 and bool(np.ptp(rewards_G) > 0)


def group_advantages(shaped_G: ArrayLike, eps: float = 1e-6) -> NDArray[np.float64]:
    """A_i = (R_i - mean) / (std + eps), std of the population (ddof = 0)."""
    rewards_G = np.asarray(shaped_G, dtype=np.float64)
    advantages_G: NDArray[np.float64] = (rewards_G - rewards_G.mean()) / (rewards_G.std() + eps)
    return advantages_G
