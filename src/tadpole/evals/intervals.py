"""pass@1, pass@k and differences with 95% intervals. Tasks are the unit.

Attempts at one task resemble each other, so intervals come from a bootstrap over tasks (BCa;
Efron 1987), seeded. Where all tasks have one rate a bootstrap has no width and would claim
certainty; there the interval is Wilson's (1927), and Newcombe's (1998, method 10) for
differences. Tasks of unequal numbers of attempts weigh the same.

scipy takes half a second to import, so that is done where there is an interval to compute.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 20_26


@dataclass(frozen=True)
class Tally:
    """The trusted attempts at one task."""

    passes: int
    trials: int

    @property
    def rate(self) -> float:
        """Share of passes."""
        return self.passes / self.trials


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_at_1(tallies: Sequence[Tally]) -> Estimate | None:
    """Mean over tasks of the pass rate; None without tasks."""
    if not tallies:
        return None
    value = mean_rate(tallies)
    low, high = _bootstrap(_rates(tallies)) or _wilson(tallies)
    return Estimate(value, max(0.0, min(low, value)), min(1.0, max(high, value)))


def mean_rate(tallies: Sequence[Tally]) -> float:
    """The value of :func:`pass_at_1` alone, which costs nothing. ``tallies``: one at least."""
    return float(_rates(tallies).mean())


def pass_at_k(tallies: Sequence[Tally], k: int) -> float | None:
    """Chance that one of ``k`` attempts passes: the unbiased estimate (Chen et al. 2021).

    Only tasks with at least ``k`` attempts count; None where there is none.
    """
    if k < 1:
        raise ValueError(f"k is {k}, must be at least 1")
    full = [tally for tally in tallies if tally.trials >= k]
    if not full:
        return None
    misses = [math.comb(t.trials - t.passes, k) / math.comb(t.trials, k) for t in full]
    return 1.0 - sum(misses) / len(misses)


def difference(before: Sequence[Tally], after: Sequence[Tally]) -> Estimate | None:
    """Mean over tasks of (after - before); both in one order of the same tasks.

    None without tasks. Raises ValueError where the lengths differ.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} tasks before, {len(after)} after: not the same tasks")
    if not before:
        return None
    deltas = np.array([b.rate - a.rate for a, b in zip(before, after, strict=True)])
    value = float(deltas.mean())
    low, high = _bootstrap(deltas) or _newcombe(before, after)
    return Estimate(value, max(-1.0, min(low, value)), min(1.0, max(high, value)))


def _rates(tallies: Sequence[Tally]) -> np.ndarray:
    return np.array([tally.rate for tally in tallies])


def _bootstrap(values: np.ndarray) -> tuple[float, float] | None:
    """The interval of the mean; None where the values do not differ."""
    if len(values) < 2 or np.ptp(values) < 1e-12:
        return None
    from scipy.stats import bootstrap

    for method in ("BCa", "percentile"):
        found = bootstrap(
            (values,),
            np.mean,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method=method,
            random_state=np.random.default_rng(SEED),
        ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    return float(found.low), float(found.high)


def _wilson(tallies: Sequence[Tally]) -> tuple[float, float]:
    from scipy.stats import binomtest

    passes, trials = sum(t.passes for t in tallies), sum(t.trials for t in tallies)
    if passes in (0, trials):  # attempts at one task are no independent evidence of the extreme
        passes, trials = (len(tallies) if passes else 0), len(tallies)
    found = binomtest(passes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return float(found.low), float(found.high)


def _newcombe(before: Sequence[Tally], after: Sequence[Tally]) -> tuple[float, float]:
    value_b = float(np.mean([t.rate for t in before]))
    value_a = float(np.mean([t.rate for t in after]))
    (low_b, high_b), (low_a, high_a) = _wilson(before), _wilson(after)
    value = value_a - value_b
    down = math.hypot(value_a - low_a, high_b - value_b)
    up = math.hypot(high_a - value_a, value_b - low_b)
    return value - down, value + up
