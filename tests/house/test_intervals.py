"""pass@1, pass@k, differences: known values, degenerate cases, seeded coverage."""

import numpy as np
import pytest

from tadpole.evals.intervals import Tally, difference, pass_at_1, pass_at_k


def test_pass_at_1_is_the_mean_over_tasks_not_over_attempts():
    found = pass_at_1([Tally(1, 1), Tally(0, 9)])
    assert found and found.value == 0.5


def test_no_tasks_is_no_estimate_never_zero():
    assert pass_at_1([]) is None
    assert pass_at_k([], 1) is None
    assert pass_at_k([Tally(1, 2)], 3) is None
    assert difference([], []) is None


def test_all_alike_gets_wilsons_interval_over_tasks():
    # Wilson (1927), 0 of 20: upper bound z^2 / (n + z^2) = 3.8415 / 23.8415
    found = pass_at_1([Tally(0, 8)] * 20)
    assert found and (found.low, found.high) == (0.0, pytest.approx(0.16113, abs=1e-4))
    found = pass_at_1([Tally(3, 3)])
    assert found and (found.low, found.high) == (pytest.approx(0.20654, abs=1e-4), 1.0)
    found = pass_at_1([Tally(4, 8)] * 3)  # 12 of 24
    assert found and found.low == pytest.approx(0.3143, abs=1e-3)


def test_the_interval_is_the_same_each_time_and_holds_its_value():
    tallies = [Tally(n % 5, 8) for n in range(20)]
    assert pass_at_1(tallies) == pass_at_1(tallies)
    for last in range(9):
        found = pass_at_1([Tally(0, 8)] * 6 + [Tally(last, 8)])
        assert found and 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize(
    ("passes", "trials", "k", "value"),
    [(1, 4, 1, 0.25), (1, 4, 2, 0.5), (2, 4, 2, 1 - 1 / 6), (4, 4, 3, 1.0), (0, 4, 4, 0.0)],
)
def test_pass_at_k_by_hand(passes: int, trials: int, k: int, value: float):
    assert pass_at_k([Tally(passes, trials)], k) == pytest.approx(value)


def test_pass_at_k_is_unbiased():
    rng = np.random.default_rng(3)
    p, n, k = 0.3, 8, 3
    found = [pass_at_k([Tally(int(c), n)], k) for c in rng.binomial(n, p, 20_000)]
    assert np.mean(found) == pytest.approx(1 - (1 - p) ** k, abs=0.005)


def test_difference_is_paired():
    before = [Tally(n % 4, 4) for n in range(24)]
    after = [Tally(n % 4 + (1 if n % 8 else 0), 4) for n in range(24)]
    paired = difference(before, after)
    assert paired and paired.value == pytest.approx(0.25 * 21 / 24)
    assert paired.low > 0.1  # though the two intervals overlap
    with pytest.raises(ValueError, match="not the same tasks"):
        difference(before, after[:3])


def test_a_difference_without_spread_claims_no_certainty():
    found = difference([Tally(0, 4)] * 5, [Tally(4, 4)] * 5)
    assert found and found.value == 1.0 and found.low < 0.5 and found.high == 1.0
    found = difference([Tally(0, 4)] * 5, [Tally(0, 4)] * 5)
    assert found and found.low < 0 < found.high


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(11)
    tasks, attempts, runs = 24, 4, 150
    hits = 0
    for _ in range(runs):
        rates = rng.beta(0.8, 1.2, tasks)  # true mean 0.4
        found = pass_at_1([Tally(int(c), attempts) for c in rng.binomial(attempts, rates)])
        assert found
        hits += found.low <= 0.4 <= found.high
    assert 0.90 <= hits / runs <= 0.99
