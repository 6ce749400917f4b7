"""The published update on numbers that were worked by hand."""

import math

import numpy as np
import pytest
import torch

from tadpole.outcome import Outcome, StopReason
from tadpole.rl.advantage import group_advantages, has_signal
from tadpole.rl.loss import kept_tokens, policy_loss
from tadpole.rl.reward import raw_reward, shaped_reward


class TestReward:
    def test_success_failure_and_truncation(self):
        assert raw_reward(Outcome.RESOLVED, StopReason.AGENT) == 1.0
        assert raw_reward(Outcome.RESOLVED, StopReason.MAX_TURNS) == 0.5
        assert raw_reward(Outcome.WRONG_PATCH, StopReason.AGENT) == 0.0
        assert raw_reward(Outcome.TAMPERED, StopReason.AGENT) == 0.0

    def test_infrastructure_is_no_reward_at_all(self):
        assert raw_reward(Outcome.INFRASTRUCTURE, StopReason.TOOL_ERROR) is None

    def test_length_term(self):
        # 1 - 0.1 ln(2000 / 1000) = 1 - 0.1 * 0.693147
        shaped = shaped_reward(1.0, 2000, free=1000, alpha=0.1, floor=0.5)
        assert shaped == pytest.approx(0.9306853, abs=1e-7)

    def test_length_is_free_up_to_n_and_floored(self):
        assert shaped_reward(1.0, 1000, free=1000, alpha=0.1, floor=0.5) == 1.0
        assert shaped_reward(1.0, 10**9, free=1000, alpha=1.0, floor=0.5) == 0.5

    def test_failures_and_cut_successes_are_left_alone(self):
        assert shaped_reward(0.0, 9999, free=10, alpha=0.1, floor=0.5) == 0.0
        assert shaped_reward(0.5, 9999, free=10, alpha=0.1, floor=0.5) == 0.5


class TestAdvantage:
    def test_mixed_group(self):
        # mean 0.25, population std sqrt(3)/4 = 0.4330127: 0.75 / 0.4330137 and -0.25 / 0.4330137
        advantages = group_advantages([1, 0, 0, 0])
        assert advantages == pytest.approx(
            [1.7320468, -0.5773489, -0.5773489, -0.5773489], abs=1e-6
        )

    def test_population_not_sample_std(self):
        # ddof 0: std of (0, 1) is 0.5; ddof 1 would be 0.7071 and the advantage 0.7071
        assert group_advantages([0, 1])[1] == pytest.approx(0.5 / (0.5 + 1e-6))

    def test_all_solved_with_different_lengths_has_no_signal(self):
        assert not has_signal([1, 1, 1])
        # ... although the shaped rewards differ and would give advantages
        assert np.ptp(group_advantages([1.0, 0.9, 0.8])) > 2

    def test_all_failed_has_no_signal(self):
        assert not has_signal([0, 0, 0])
        assert group_advantages([0, 0, 0]) == pytest.approx([0, 0, 0])

    def test_truncated_success_is_signal(self):
        assert has_signal([1, 0.5])
        assert not has_signal([1])


class TestLoss:
    def test_hand_worked(self):
        p = torch.tensor([0.5, 0.3, 0.9, 0.1])
        q = torch.tensor([0.4, 0.6, 0.6, 0.4])
        advantage = torch.tensor([1.0, 1.0, 1.0, -1.0])
        # p - q: 0.1 kept, -0.3 kept (A > 0), 0.3 dropped (A > 0), -0.3 dropped (A <= 0)
        kept = kept_tokens(p.log(), q.log(), advantage)
        assert kept.tolist() == [True, True, False, False]
        # -(0.5/0.4 + 0.3/0.6) / 4 = -1.75 / 4: the dropped tokens stay in the denominator
        loss = policy_loss(p.log(), q.log(), advantage, trainable=4)
        assert float(loss) == pytest.approx(-0.4375, abs=1e-6)

    def test_huge_ratio_with_a_small_probability_gap_is_kept(self):
        p, q = torch.tensor([0.15]), torch.tensor([0.005])  # ratio 30, gap 0.145
        loss = policy_loss(p.log(), q.log(), torch.tensor([1.0]), trainable=1)
        assert float(loss) == pytest.approx(-30.0, rel=1e-5)

    @pytest.mark.parametrize(
        ("p", "advantage", "kept"),
        [(0.74, 1, False), (0.66, 1, True), (0.31, -1, True), (0.29, -1, False), (0.29, 1, True),
         (0.74, -1, True), (0.29, 0, False)],
    )  # fmt: skip
    def test_mask_is_one_sided(self, p, advantage, kept):
        mask = kept_tokens(
            torch.tensor([math.log(p)]),
            torch.tensor([math.log(0.5)]),
            torch.tensor([float(advantage)]),
        )
        assert mask.tolist() == [kept]

    def test_gradient_is_advantage_times_ratio_on_kept_tokens(self):
        logp = torch.tensor([0.5, 0.9]).log().requires_grad_()
        logq = torch.tensor([0.4, 0.6]).log()
        policy_loss(logp, logq, torch.tensor([2.0, 1.0]), trainable=2).backward()
        # d/dlogp of -(2 * ratio) / 2 = -1.25; the second token is dropped
        assert logp.grad.tolist() == pytest.approx([-1.25, 0.0])

    def test_an_infinite_dropped_ratio_leaves_no_nan(self):
        logp = torch.tensor([0.0, -1.0]).requires_grad_()
        logq = torch.tensor([-torch.inf, -1.0])
        loss = policy_loss(logp, logq, torch.tensor([1.0, 1.0]), trainable=2)
        loss.backward()
        assert torch.isfinite(loss) and torch.isfinite(logp.grad).all()

    def test_micro_batches_add_up(self):
        generator = torch.Generator().manual_seed(0)
        logp, logq = (-torch.rand(10, generator=generator) for _ in range(2))
        advantage = torch.randn(10, generator=generator)
        whole = policy_loss(logp, logq, advantage, trainable=10)
        parts = sum(
            policy_loss(logp[s], logq[s], advantage[s], trainable=10)
            for s in (slice(0, 3), slice(3, 10))
        )
        assert float(whole) == pytest.approx(float(parts), abs=1e-6)

    def test_against_a_plain_float64_loop(self):
        generator = torch.Generator().manual_seed(1)
        logp, logq = (-3 * torch.rand(200, generator=generator).double() for _ in range(2))
        advantage = torch.randn(200, generator=generator).double()
        total = 0.0
        for lp, lq, a in zip(logp.tolist(), logq.tolist(), advantage.tolist(), strict=True):
            p, q = math.exp(lp), math.exp(lq)
            if (a > 0 and p - q > 0.2) or (a <= 0 and p - q < -0.2):
                continue
            total -= a * p / q
        assert float(policy_loss(logp, logq, advantage, trainable=200)) == pytest.approx(
            total / 200, abs=1e-12
        )
