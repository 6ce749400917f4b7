"""Prompts go round all workers, however few are submitted at a time."""

from collections import Counter

import pytest
import torch

from tadpole.engines.verl.workers import rotated


def dealt(workers, submitted):
    """Prompts of each worker, with verl's way of dealing: one piece a worker, first to first."""
    order, found = list(workers), Counter({worker: 0 for worker in workers})
    for prompts in submitted:
        for worker, piece in zip(order, torch.arange(prompts).chunk(len(order)), strict=False):
            found[worker] += len(piece)
        order = rotated(order, prompts)
    return found


@pytest.mark.parametrize(
    ("submitted", "most"),
    [([1] * 16, 2), ([2] * 8, 2), ([3, 1, 3, 1], 1), ([8], 1), ([32, 1, 1, 1, 1], 5), ([10, 6], 3)],
)
def test_none_is_crowded(submitted, most):
    found = dealt("abcdefgh", submitted)
    assert max(found.values()) == most and sum(found.values()) == sum(submitted)


def test_nothing_submitted_changes_nothing():
    assert rotated([1, 2, 3], 0) == rotated([1, 2, 3], 3) == [1, 2, 3]
