"""Advantages of a batch in verl's order, worked by hand, and against verl's own where it is."""

import importlib.util

import pytest
import torch

from tadpole.engines.verl.advantages import Episode, advantages_of
from tadpole.outcome import GradeStatus, Outcome, StopReason
from tadpole.settings import TrainConfig
from tadpole.trace import Attempt, Grade

SHAPED = TrainConfig(length_from_update=3, length_free_tokens=1000, length_alpha=0.1)


def episode(group, reward, generated=10, sample=0):
    outcome = Outcome.RESOLVED if reward else Outcome.WRONG_PATCH
    attempt = Attempt(
        task=group, task_name=group, policy="p", sample=sample, stop=StopReason.AGENT,
        outcome=outcome, reward=reward, turns=1, generated_tokens=generated, seconds=1.0,
        grade=Grade(status=GradeStatus.GRADED, resolved=bool(reward)),
    )  # fmt: skip
    return Episode(group, attempt)


def found(rows, train=TrainConfig(), update=1):  # noqa: B008
    return advantages_of(rows, train, update=update, seed=0)


def test_groups_are_kept_apart_in_any_order():
    # (1, 0): mean 0.5, std 0.5; (1, 0, 0, 0): mean 0.25, std sqrt(3)/4 = 0.4330127
    rows = [episode("a", 1.0), episode("b", 1.0), episode("b", 0.0), episode("a", 0.0),
            episode("b", 0.0), episode("b", 0.0)]  # fmt: skip
    high, low = 0.75 / 0.4330137, -0.25 / 0.4330137
    wanted = [0.999998, high, low, -0.999998, low, low]
    assert found(rows) == pytest.approx(wanted, abs=1e-6)


def test_raw_rewards_decide_and_shaped_ones_count():
    # (1, 1, 0, 0) with 1000 and 2000 tokens: as in the tests of the update itself.
    rows = [episode("a", 1.0, 1000), episode("a", 1.0, 2000), episode("a", 0.0), episode("a", 0.0)]
    wanted = [1.0704229, 0.9270003, -0.9987111, -0.9987111]
    assert found(rows, SHAPED, update=3) == pytest.approx(wanted, abs=2e-6)
    alike = [episode("a", 1.0, 500), episode("a", 1.0, 4000)]
    assert found(alike, SHAPED, update=3) == [0.0, 0.0]


def test_padding_and_a_lone_survivor_teach_nothing():
    rows = [Episode("pad", None), episode("a", 1.0), Episode("pad", None)]
    assert found(rows) == [0.0, 0.0, 0.0]


def test_padding_changes_nothing_for_the_others():
    rows = [episode("a", 1.0), episode("a", 0.0)]
    assert found([*rows, Episode("a", None)])[:2] == found(rows)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed")
def test_verls_own_are_those_of_a_sample():
    """Its deviation is the sample's: smaller advantages by sqrt(7 / 8) in a group of eight."""
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    raw = [1.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0]
    theirs, _ = compute_grpo_outcome_advantage(
        torch.tensor(raw)[:, None], torch.ones(8, 1), ["g"] * 8
    )
    ours = torch.tensor(found([episode("g", r) for r in raw]))
    torch.testing.assert_close(theirs[:, 0], ours * (7 / 8) ** 0.5, rtol=1e-5, atol=1e-5)
