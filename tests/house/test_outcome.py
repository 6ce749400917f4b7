"""The policy tables say something for every ending, and the parts act by them."""

import itertools

import pytest
from synthetic import make_attempt, make_task

from tadpole.evals.scoreboard import Scoreboard
from tadpole.outcome import (
    GRADE_POLICY,
    OUTCOME_POLICY,
    STOP_POLICY,
    Counting,
    GradeStatus,
    Outcome,
    StopReason,
    outcome_of,
)
from tadpole.rl.reward import raw_reward


def test_the_tables_are_complete():
    assert set(GRADE_POLICY) == set(GradeStatus)
    assert set(OUTCOME_POLICY) == set(Outcome)
    assert set(STOP_POLICY) == set(StopReason)


@pytest.mark.parametrize("status", GradeStatus)
def test_an_attempt_is_used_as_its_grade_says(status: GradeStatus):
    policy = GRADE_POLICY[status]
    for resolved in (False, True):
        outcome = outcome_of(StopReason.AGENT, status, resolved, empty=False)
        assert OUTCOME_POLICY[outcome].retry is policy.retry
        reward = raw_reward(outcome, StopReason.AGENT)
        assert (reward is not None) is policy.train
        board = Scoreboard.of([make_attempt(make_task(1), "p", 0, outcome)])
        assert board.attempts == (policy.count is not Counting.APART)
        passed = board.pass_at_1.value if board.pass_at_1 else None
        wanted = {
            Counting.RESULT: float(resolved),
            Counting.FAILURE: 0.0,
            Counting.APART: None,
        }[policy.count]
        assert (passed, reward) == (wanted, wanted)


def test_could_not_tell_is_never_a_reward():
    every = itertools.product(StopReason, [None, *GradeStatus], (False, True), (False, True))
    for stop, status, resolved, empty in every:
        outcome = outcome_of(stop, status, resolved, empty)
        unknown = status in (None, GradeStatus.INVALID) or not STOP_POLICY[stop].trust
        assert (outcome is Outcome.INFRASTRUCTURE) is unknown
        assert (raw_reward(outcome, stop) is None) is unknown
        if status is GradeStatus.TAMPERED and not unknown:
            assert raw_reward(outcome, stop) == 0
