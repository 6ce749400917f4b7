import itertools
from math import comb

import pytest

from tadpole.pilot.decision import Rule, Verdict

KEEP, HARD, EASY, OPEN = Verdict.KEEP, Verdict.TOO_HARD, Verdict.TOO_EASY, Verdict.OPEN
MIDDLE = Rule(8, 0.375, 0.625)  # 3, 4 or 5 of 8
LOWER = Rule(8, 0.0, 0.5)  # 1 to 4 of 8
PROBED = Rule(8, 0.375, 0.625, probe=4)


@pytest.mark.parametrize(
    "rule, fewest, most",
    [
        (MIDDLE, 3, 5),
        (LOWER, 1, 4),
        (Rule(8, 0.125, 0.875), 1, 7),
        (Rule(8), 1, 7),  # 0 and 1 themselves are never kept
        (Rule(3, 0.05, 0.95), 1, 2),
        (Rule(2), 1, 1),
        (Rule(10, 0.3, 0.3), 3, 3),  # 0.3 * 10 is 3 in decimals and more in doubles
        (Rule(10, 0.7, 0.7), 7, 7),  # and 0.7 * 10 is less
        (Rule(3, 0.45, 0.55), 2, 1),  # no count of 3 lies there
        (Rule(1), 1, 0),
    ],
)
def test_the_band_in_successes(rule, fewest, most):
    assert (rule.fewest, rule.most) == (fewest, most)
    assert rule.possible == (fewest <= most)


@pytest.mark.parametrize(
    "rule, passes, valid, verdict",
    [
        (MIDDLE, 0, 5, OPEN),  # three more could still come
        (MIDDLE, 0, 6, HARD),  # 2 at most
        (MIDDLE, 2, 7, OPEN),
        (MIDDLE, 2, 8, HARD),
        (MIDDLE, 5, 5, OPEN),  # 5 of 8 is inside
        (MIDDLE, 6, 6, EASY),
        (MIDDLE, 3, 6, KEEP),  # 3, 4 or 5
        (MIDDLE, 3, 5, OPEN),  # 6 of 8 is still possible
        (MIDDLE, 4, 7, KEEP),
        (MIDDLE, 5, 8, KEEP),
        (MIDDLE, 5, 7, OPEN),
        (LOWER, 1, 5, KEEP),  # 4 at most
        (LOWER, 1, 4, OPEN),
        (LOWER, 5, 5, EASY),
        (LOWER, 0, 7, OPEN),
        (LOWER, 0, 8, HARD),
        (Rule(8), 1, 2, KEEP),  # one of each: neither none nor all any more
        (Rule(8), 0, 7, OPEN),
        (PROBED, 0, 3, OPEN),
        (PROBED, 0, 4, HARD),
        (PROBED, 4, 4, EASY),
        (PROBED, 3, 3, OPEN),
        (PROBED, 1, 4, OPEN),  # extended
        (PROBED, 5, 5, EASY),
        (Rule(8, 0.0, 0.5, probe=9), 0, 7, OPEN),  # a probe as long as all is none
        (MIDDLE, 0, 0, OPEN),
    ],
)
def test_the_verdict(rule, passes, valid, verdict):
    assert rule.verdict(passes, valid) is verdict


@pytest.mark.parametrize(
    "rule, passes, valid, owed",
    [
        (MIDDLE, 0, 0, 6),  # six passes are too many, six failures too few left
        (MIDDLE, 2, 4, 2),  # 3 of 6 settles it, nothing of 5 does
        (MIDDLE, 3, 6, 0),
        (LOWER, 0, 0, 5),
        (LOWER, 1, 4, 1),
        (Rule(8), 0, 0, 2),
        (Rule(8), 2, 2, 1),
        (PROBED, 0, 0, 4),
        (PROBED, 0, 3, 1),
        (PROBED, 2, 4, 2),
        (Rule(3, 0.05, 0.95, probe=3), 0, 0, 2),
        (Rule(2), 0, 0, 2),
    ],
)
def test_what_is_owed_in_any_case(rule, passes, valid, owed):
    assert rule.owed(passes, valid) == owed


@pytest.mark.parametrize("rule", [MIDDLE, LOWER, Rule(8), Rule(5, 0.05, 0.95), Rule(6, 0.5, 0.5)])
def test_without_a_probe_an_early_verdict_is_that_of_all_attempts(rule):
    for row in itertools.product((0, 1), repeat=rule.samples):
        last = rule.verdict(sum(row), rule.samples)
        assert last is not OPEN
        valid = 0
        while more := rule.owed(sum(row[:valid]), valid):
            valid += more
        assert valid <= rule.samples
        assert rule.verdict(sum(row[:valid]), valid) is last
        inside = max(1, rule.low * rule.samples) <= sum(row)
        inside &= sum(row) <= min(rule.samples - 1, rule.high * rule.samples)
        assert (last is KEEP) == inside


def spent(rule, passes=0, valid=0, rate=0.5):
    """Expected attempts and chance to be kept, exactly."""
    more = rule.owed(passes, valid)
    if not more:
        return 0.0, float(rule.verdict(passes, valid) is KEEP)
    found = [more, 0.0]
    for won in range(more + 1):
        chance = comb(more, won) * rate**won * (1 - rate) ** (more - won)
        attempts, kept = spent(rule, passes + won, valid + more, rate)
        found = [found[0] + chance * attempts, found[1] + chance * kept]
    return tuple(found)


def test_chances_and_costs_by_hand():
    """P(3..5 of 8) at 1/2 is (56 + 70 + 56) / 256, P(1..4 of 8) is (8 + 28 + 56 + 70) / 256."""
    assert spent(MIDDLE, rate=0.5)[1] == 182 / 256
    assert spent(LOWER, rate=0.5)[1] == 162 / 256
    assert spent(MIDDLE, rate=0.0) == (6, 0)
    assert spent(LOWER, rate=1.0) == (5, 0)
    assert spent(PROBED, rate=0.0) == (4, 0)
    # One of each is enough: 2 attempts with chance 1/2, 3 with 1/4, ... 7 with 1/64, else 8.
    assert spent(Rule(8), rate=0.5)[0] == sum(n / 2 ** (n - 1) for n in range(2, 8)) + 8 / 64
