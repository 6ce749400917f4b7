"""Which of verl's agent-loop workers the next prompts go to. Pure.

verl cuts what it submits into as many pieces as there are workers, and gives the first piece to
the first worker. Prompts that are drawn anew come one or a few at a time: all of them would be
played by the first workers, whose places are bounded, while the last ones idle.
"""

from collections.abc import Sequence
from typing import TypeVar

_W = TypeVar("_W")


def rotated(workers: Sequence[_W], prompts: int) -> list[_W]:
    """The workers after ``prompts`` were submitted: those that got nothing, or less, come first."""
    each = -(-prompts // len(workers))  # prompts of one piece, as torch.chunk cuts them
    pieces = -(-prompts // each) if each else 0
    first = pieces % len(workers)
    return [*workers[first:], *workers[:first]]
