"""The whole update against independent references in float64, on one frozen batch.

The references are written from the published formulas, one token at a time, and share no code
with the package: the report's displayed loss, SkyRL's ``dppo`` and verl's ``dppo_tv``. Where verl
is installed its own function is asked, too.
"""

import copy
import math
import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tadpole.rl.batch import Sample
from tadpole.rl.groups import learned_advantages
from tadpole.rl.learner import Learner
from tadpole.rl.loss import policy_loss
from tadpole.settings import TrainConfig
from tadpole.trace import Tokens
from tests.tiny import llama

DELTA = 0.2


@dataclass(frozen=True)
class Frozen:
    """Padded rows, as trainers hold them; what the mask hides is rubbish on purpose."""

    logp: np.ndarray  # [rows, tokens], float64, nats
    logq: np.ndarray
    advantage: np.ndarray  # one number a row, spread over its tokens
    mask: np.ndarray


def frozen(seed=0, rows=8, width=24):
    rng = random.Random(seed)
    logp, logq, advantage, mask = (np.zeros((rows, width)) for _ in range(4))
    for row in range(rows):
        good = rng.gauss(0, 1)
        for t in range(width):
            mask[row, t] = t < rng.randrange(6, width) and rng.random() < 0.7
            logp[row, t], logq[row, t] = -rng.expovariate(1), -rng.expovariate(1)
            advantage[row, t] = good
    # ratio 30 with a small difference in probability; a ratio of e^12; p and q alike
    logp[0, 0], logq[0, 0], mask[0, 0] = math.log(0.15), math.log(0.005), 1
    logp[1, 0], logq[1, 0], mask[1, 0] = math.log(0.1), math.log(0.1) - 12, 1
    logp[2, 0] = logq[2, 0] = -0.3
    mask[2, 0] = 1
    logp[mask == 0] = 123.0  # e^123 would show
    advantage[mask == 0] = 1e6
    return Frozen(logp, logq, advantage, mask)


def published(batch):
    """(loss, d loss / d logp): -(1 / |T|) sum over kept tokens of A p / q."""
    count = batch.mask.sum()
    loss, slope = 0.0, np.zeros_like(batch.logp)
    for at in np.ndindex(batch.mask.shape):
        if not batch.mask[at]:
            continue
        p, q, a = math.exp(batch.logp[at]), math.exp(batch.logq[at]), batch.advantage[at]
        if (a > 0 and p - q > DELTA) or (a <= 0 and p - q < -DELTA):
            continue
        loss -= a * p / q / count
        slope[at] = -a * p / q / count
    return loss, slope


def skyrl_dppo(batch):
    """SkyRL's ``dppo``: the clamped ratio times the mask, ``token_mean`` over the loss mask."""
    logp = torch.tensor(batch.logp, requires_grad=True)
    logq, advantage = torch.tensor(batch.logq), torch.tensor(batch.advantage)
    mask = torch.tensor(batch.mask)
    ratio = (logp - logq).clamp(-20, 20).exp()
    moved = (logp.exp() - logq.exp()).detach()
    invalid = ((advantage > 0) & (moved > DELTA)) | ((advantage <= 0) & (moved < -DELTA))
    token = -(ratio * advantage * (~invalid))
    loss = torch.where(mask > 0, token, torch.zeros_like(token)).sum() / mask.sum()
    (slope,) = torch.autograd.grad(loss, logp)
    return float(loss.detach()), slope.numpy()


def verl_dppo_tv(batch, truncated_at):
    """verl's ``dppo_tv``: a detached, truncated ratio times log p, ``token-mean``. The gradient."""
    logp = torch.tensor(batch.logp, requires_grad=True)
    logq, advantage = torch.tensor(batch.logq), torch.tensor(batch.advantage)
    mask = torch.tensor(batch.mask)
    ratio = (logp - logq).clamp(-20, 20).exp().clamp(max=truncated_at).detach()
    moved = (logp.exp() - logq.exp()).detach()
    valid = torch.where(advantage > 0, moved <= DELTA, moved >= -DELTA)
    token = -advantage * ratio * logp * valid
    loss = torch.where(mask > 0, token, torch.zeros_like(token)).sum() / mask.sum()
    (slope,) = torch.autograd.grad(loss, logp)
    return slope.numpy()


def ours(batch, dtype=torch.float64):
    """(loss, gradient) of the package: it is given the trainable tokens and nothing else."""
    chosen = torch.tensor(batch.mask) > 0
    logp = torch.tensor(batch.logp, dtype=dtype)[chosen].requires_grad_()
    logq = torch.tensor(batch.logq, dtype=dtype)[chosen]
    advantage = torch.tensor(batch.advantage, dtype=dtype)[chosen]
    loss = policy_loss(logp, logq, advantage, int(chosen.sum()), DELTA)
    (short,) = torch.autograd.grad(loss, logp)
    slope = torch.zeros(batch.mask.shape, dtype=dtype)
    slope[chosen] = short
    return float(loss.detach()), slope.numpy()


@pytest.mark.parametrize("seed", range(5))
class TestFrozenBatch:
    def test_the_published_formula(self, seed):
        batch = frozen(seed)
        (loss, slope), (loss_, slope_) = ours(batch), published(batch)
        assert loss == pytest.approx(loss_, rel=1e-12)
        np.testing.assert_allclose(slope, slope_, rtol=1e-12, atol=1e-15)
        assert 0 < (slope == 0)[batch.mask > 0].sum() < batch.mask.sum()  # some were dropped

    def test_skyrl(self, seed):
        batch = frozen(seed)
        (loss, slope), (loss_, slope_) = ours(batch), skyrl_dppo(batch)
        assert loss == pytest.approx(loss_, rel=1e-12)
        np.testing.assert_allclose(slope, slope_, rtol=1e-12, atol=1e-15)

    def test_verl(self, seed):
        """The same gradient where its truncation is out of the way; by default it is not."""
        batch = frozen(seed)
        _, slope = ours(batch)
        np.testing.assert_allclose(slope, verl_dppo_tv(batch, 1e9), rtol=1e-12, atol=1e-15)
        assert np.abs(slope - verl_dppo_tv(batch, 3.0)).max() > 1e-3

    def test_float32_is_close(self, seed):
        batch = frozen(seed)
        (loss, slope), (loss_, slope_) = ours(batch, torch.float32), published(batch)
        assert loss == pytest.approx(loss_, rel=1e-4)
        np.testing.assert_allclose(slope, slope_, rtol=1e-4, atol=1e-7)


def test_verl_itself():
    algos = pytest.importorskip(
        "verl.trainer.ppo.core_algos",
        reason="verl is not installed: pip install verl==0.9.1, in an environment of its own",
    )
    config = pytest.importorskip("verl.workers.config")
    actor = config.ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=DELTA,
        clip_ratio_low=DELTA, clip_ratio_high=DELTA, clip_ratio_c=1e9,
    )  # fmt: skip
    for seed in range(5):
        batch = frozen(seed)
        logp = torch.tensor(np.where(batch.mask > 0, batch.logp, 0.0), requires_grad=True)
        loss, _ = algos.get_policy_loss_fn("dppo_tv")(
            torch.tensor(batch.logq),
            logp,
            torch.tensor(np.where(batch.mask > 0, batch.advantage, 0.0)),
            torch.tensor(batch.mask),
            "token-mean",
            actor,
        )
        (slope,) = torch.autograd.grad(loss, logp)
        np.testing.assert_allclose(ours(batch)[1], slope.numpy(), rtol=1e-9, atol=1e-12)


class TestGroups:
    """Filter, shaping and advantage of whole groups, worked by hand."""

    SHAPED = TrainConfig(
        length_from_update=3, length_free_tokens=1000, length_alpha=0.1, length_floor=0.5
    )

    def advantages(self, raw, generated, update=3, settings=SHAPED):
        rng = np.random.default_rng(0)
        return learned_advantages(raw, generated, settings, update=update, rng=rng)

    def test_all_success_of_different_lengths(self):
        # The shaped rewards would be 1, 0.93 and 0.86: shaping does not revive the group.
        assert self.advantages([1, 1, 1], [500, 2000, 4000]) is None

    def test_all_fail(self):
        assert self.advantages([0, 0, 0], [500, 2000, 4000]) is None

    def test_all_cut(self):
        assert self.advantages([0.5, 0.5], [500, 2000]) is None

    def test_mixed(self):
        # 1 - 0.1 ln 2 = 0.9306853, so R = (1, 0.9306853, 0, 0): mean 0.4826713; deviations
        # 0.5173287, 0.4480140, -0.4826713 twice; squares 0.2676290, 0.2007165, 0.2329716 twice;
        # variance 0.9342887 / 4 = 0.2335722, std 0.4832931 (+ 1e-6).
        found = self.advantages([1, 1, 0, 0], [1000, 2000, 9000, 10])
        assert found == pytest.approx([1.0704229, 0.9270003, -0.9987111, -0.9987111], abs=2e-6)

    def test_before_shaping_begins(self):
        # (1, 1, 0, 0): mean 0.5, std 0.5, so 0.5 / 0.500001
        found = self.advantages([1, 1, 0, 0], [1000, 2000, 9000, 10], update=2)
        assert found == pytest.approx([0.999998, 0.999998, -0.999998, -0.999998], abs=1e-9)

    def test_truncated_success(self):
        # (1, 0.5, 0): mean 0.5, std sqrt(1/6) = 0.4082483; 0.5 / 0.4082493. Its length is no
        # matter: only whole successes are shaped.
        found = self.advantages([1, 0.5, 0], [10, 99_999, 10])
        assert found == pytest.approx([1.2247419, 0.0, -1.2247419], abs=1e-6)

    def test_a_long_success_is_not_below_a_cut_one(self):
        # 1 - 0.1 ln(10^6) would be -0.38 at 10^9 tokens: the floor makes it (0.5, 0.5, 0), with
        # mean 1/3 and std sqrt(1/18) = 0.2357023; (1/6) / 0.2357033, (-1/3) / 0.2357033
        found = self.advantages([1, 0.5, 0], [10**9, 10, 10])
        assert found == pytest.approx([0.7071038, 0.7071038, -1.4142076], abs=1e-7)

    def test_the_control_only_changes_who_gets_which(self):
        rng = np.random.default_rng(3)
        settings = TrainConfig(shuffle_rewards=True)
        raw = [1, 1, 0, 0, 0, 0, 0, 0]
        found = learned_advantages(raw, [1] * 8, settings, update=1, rng=rng)
        straight = learned_advantages(raw, [1] * 8, TrainConfig(), update=1, rng=rng)
        assert sorted(found) == pytest.approx(sorted(straight))
        assert list(found) != pytest.approx(list(straight))

    @pytest.mark.parametrize("seed", range(20))
    def test_against_a_plain_float64_loop(self, seed):
        rng = random.Random(seed)
        raw = [rng.choice((0.0, 0.5, 1.0)) for _ in range(8)]
        lengths = [rng.randrange(1, 20_000) for _ in raw]
        rewards = [
            max(0.5, 1 - 0.1 * math.log(n / 1000)) if r == 1 and n > 1000 else r
            for r, n in zip(raw, lengths, strict=True)
        ]
        mean = math.fsum(rewards) / 8
        std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / 8)
        found = self.advantages(raw, lengths)
        if len(set(raw)) == 1:
            assert found is None
        else:
            assert list(found) == pytest.approx([(r - mean) / (std + 1e-6) for r in rewards])


class TestWholeUpdate:
    """The learner's gradient is that of the formula on a float64 copy of the model, row by row."""

    def samples(self, seed=0):
        torch.manual_seed(seed)
        rng = random.Random(seed)
        made = []
        for _ in range(2):  # two tasks
            prompt = torch.randint(257, (7,)).tolist()
            for advantage in (1.3, -0.4, -0.9, 0.2):
                rest = torch.randint(257, (rng.randrange(3, 9),)).tolist()
                # Tool results in between: in the context, without loss.
                mask = [1 if k in (0, 1) or rng.random() < 0.6 else 0 for k in range(len(rest))]
                logq = [-rng.expovariate(0.4) if trained else 0.0 for trained in mask]
                # Stale tokens: half of them are two versions old.
                versions = [rng.choice((3, 5)) if trained else -1 for trained in mask]
                made.append(
                    Sample(
                        Tokens(
                            ids=(*prompt, *rest),
                            logprobs=(*[0.0] * 7, *logq),
                            loss_mask=(*[0] * 7, *mask),
                            versions=(*[-1] * 7, *versions),
                        ),
                        advantage,
                    )
                )
        return made

    def reference(self, model, samples):
        exact = copy.deepcopy(model).double()
        trainable = sum(sum(sample.tokens.loss_mask) for sample in samples)
        loss = torch.zeros((), dtype=torch.float64)
        for sample in samples:
            tokens = sample.tokens
            logs = exact(input_ids=torch.tensor([tokens.ids])).logits[0].log_softmax(-1)
            for at, trained in enumerate(tokens.loss_mask):
                if not trained:
                    continue
                logp, q = logs[at - 1, tokens.ids[at]], math.exp(tokens.logprobs[at])
                p = math.exp(float(logp.detach()))
                a = sample.advantage
                if (a > 0 and p - q > DELTA) or (a <= 0 and p - q < -DELTA):
                    continue
                loss = loss - a * logp.exp() / q / trainable
        loss.backward()
        return float(loss.detach()), {n: p.grad for n, p in exact.named_parameters()}

    @pytest.mark.parametrize("budget", [16, 64, 4096])
    @pytest.mark.parametrize("share", [True, False])
    def test_loss_and_gradient(self, budget, share):
        model, samples = llama(), self.samples()
        loss, slopes = self.reference(model, samples)
        before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        learner = Learner(model, lr=1.0, grad_clip=1e9, micro_batch_tokens=budget, max_mean_gap=1.0)
        learner.share = share
        # A step of plain descent at rate 1 leaves the gradient in the weights.
        learner.optimizer = torch.optim.SGD(learner.parameters, lr=1.0)
        stats = learner.update(samples)
        assert stats.loss == pytest.approx(loss, rel=1e-4)
        assert 0 < stats.dropped_share < 1
        largest = max(float(slope.abs().max()) for slope in slopes.values())
        for name, tensor in model.named_parameters():
            found = (before[name] - tensor.detach()).double()
            torch.testing.assert_close(found, slopes[name], rtol=2e-3, atol=2e-5 * largest)
