"""Sampling in this process reports the probabilities of the model, whatever the batch."""

import asyncio
import random

import pytest
import torch
import transformers

from tadpole.errors import ModelError
from tadpole.models.draw import draw, log_distribution
from tadpole.models.inprocess import InProcessPolicy
from tadpole.protocols import Sampling
from tests.tiny import llama

END = 257


def policy(model, **options):
    return InProcessPolicy(model, end_ids=[END], fingerprint="tiny", **options)


async def conversations(sampler, number, turns, *, seed=0, tokens=12):
    """Episodes of several turns whose prompts share a beginning; returns what was sampled."""
    shared = random.Random(seed)
    common = [shared.randrange(257) for _ in range(20)]

    async def episode(name):
        rng = random.Random(f"{seed} {name}")
        ids = [*common, *(rng.randrange(257) for _ in range(rng.randrange(1, 6)))]
        parts = []
        for _ in range(turns):
            await asyncio.sleep(shared.random() / 200)
            sampled = await sampler.sample(
                ids, Sampling(max_tokens=tokens), episode=str(name), seed=seed
            )
            parts.append((len(ids), sampled))
            ids += [*sampled.ids, *(rng.randrange(257) for _ in range(rng.randrange(1, 9)))]
        sampler.release(str(name))
        return ids, parts

    return await asyncio.gather(*(episode(name) for name in range(number)))


def worst_gap(model, results):
    """max |p - q| between a plain forward pass over the episode and what the sampler said."""
    gap = 0.0
    for ids, parts in results:
        with torch.no_grad():
            logs = model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)
        for start, sampled in parts:
            for offset, (token, logq) in enumerate(zip(sampled.ids, sampled.logprobs, strict=True)):
                logp = float(logs[start + offset - 1, token])
                gap = max(gap, abs(torch.tensor(logp).exp() - torch.tensor(logq).exp()).item())
    return gap


@pytest.mark.parametrize("slots", [2, 5, 16])
async def test_log_probabilities_are_the_models_own(slots):
    """Few slots: conversations wait, lose their cache and are read again. Many: they share."""
    model = llama()
    sampler = policy(model, slots=slots)
    try:
        results = await conversations(sampler, number=9, turns=3)
        assert worst_gap(model, results) < 1e-5
    finally:
        sampler.close()


async def test_a_stream_does_not_depend_on_its_neighbours():
    model = llama()
    alone, crowded = policy(model, slots=4), policy(model, slots=4)
    try:
        prompt = [5, 6, 7]
        one = await alone.sample(prompt, Sampling(max_tokens=20), episode="a", seed=3)
        many = await asyncio.gather(
            *(
                crowded.sample(prompt + extra, Sampling(max_tokens=20), episode=name, seed=3)
                for name, extra in (("a", []), ("b", [9]), ("c", [8, 8, 8]))
            )
        )
        assert one.ids == many[0].ids
        again = await alone.sample(prompt, Sampling(max_tokens=20), episode="a2", seed=3)
        assert again.ids != one.ids
    finally:
        alone.close()
        crowded.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_repeatable_means_to_the_last_bit(dtype):
    """Whoever else is decoded, whenever: the same tokens and the same log-probabilities."""
    model, found = llama(), []
    for slots, number in ((4, 4), (7, 4), (4, 1)):
        sampler = policy(model, slots=slots, dtype=dtype, repeatable=True)
        try:
            results = await conversations(sampler, number=number, turns=3, tokens=8)
            # Again, in slots that hold what others said.
            again = await conversations(sampler, number=number, turns=3, tokens=8)
        finally:
            sampler.close()
        found += [results[0], again[0]]
        assert worst_gap(model, results) < (1e-5 if dtype is torch.float32 else 1)
    assert all(one == found[0] for one in found)


async def test_refresh_samples_from_the_new_weights():
    model = llama()
    sampler = policy(model, slots=4)
    try:
        await conversations(sampler, number=4, turns=1)
        model.load_state_dict(llama(seed=1).state_dict())
        sampler.refresh("tiny+1", 1)
        results = await conversations(sampler, number=4, turns=2)
        assert worst_gap(model, results) < 1e-5
        assert {s.version for _, parts in results for _, s in parts} == {1}
        assert sampler.fingerprint == "tiny+1"
    finally:
        sampler.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_weights_apart_are_taken_over_between_two_turns(dtype):
    """The model is trained while it is sampled: each turn is of one version, whole."""
    model = llama()
    sampler = policy(model, slots=3, apart=True, dtype=dtype)
    versions = [llama(seed=seed) for seed in range(4)]
    parts = []

    async def talk(name):
        ids = [1, 2, 3 + name]
        for turn in range(6):
            sampled = await sampler.sample(
                ids, Sampling(max_tokens=8), episode=str(name), seed=turn
            )
            parts.append((tuple(ids), sampled))
            ids += sampled.ids
        sampler.release(str(name))

    async def train():
        for version in (1, 2, 3):
            await asyncio.sleep(0.02)
            model.load_state_dict(versions[version].state_dict())  # torn, for who looks now
            await sampler.renew(f"tiny+{version}", version)
            assert (sampler.fingerprint, sampler.version) == (f"tiny+{version}", version)

    try:
        await asyncio.gather(*(talk(name) for name in range(6)), train())
        await talk(9)
        assert len({sampled.version for _, sampled in parts}) > 1
        for ids, sampled in parts:
            one = versions[sampled.version]
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is torch.bfloat16):
                gap = worst_gap(one, [([*ids, *sampled.ids], [(len(ids), sampled)])])
            assert gap < (1e-5 if dtype is torch.float32 else 0.05)
    finally:
        sampler.close()


async def test_a_closed_policy_says_so_to_who_renews_it():
    sampler = policy(llama(), slots=2, apart=True)
    await sampler.sample([1], Sampling(max_tokens=2), episode="a", seed=0)
    sampler.close()
    await sampler.renew("tiny+1", 1)  # nothing is being sampled: at once
    assert sampler.version == 1


async def test_bfloat16_rollout_follows_the_learners_autocast():
    model = llama()
    sampler = policy(model, slots=8, dtype=torch.bfloat16)
    try:
        for seed in (1, 2):
            model.load_state_dict(llama(seed=seed).state_dict())
            sampler.refresh("tiny", seed)
            results = await conversations(sampler, number=6, turns=2, seed=seed)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert worst_gap(model, results) < 0.05
    finally:
        sampler.close()


async def test_a_turn_ends_at_the_end_token_at_its_limit_or_at_the_context():
    model = llama()
    sampler = policy(model, slots=2, max_context=40)
    try:
        results = await conversations(sampler, number=4, turns=1, tokens=5)
        for _, ((_, sampled),) in results:
            assert sampled.ended == (sampled.ids[-1] == END)
            assert sampled.ended or len(sampled.ids) == 5
        full = await sampler.sample([1] * 38, Sampling(max_tokens=9), episode="x", seed=0)
        assert len(full.ids) <= 2
        with pytest.raises(ModelError, match="40 are the limit"):
            await sampler.sample([1] * 40, Sampling(max_tokens=9), episode="y", seed=0)
    finally:
        sampler.close()


def hybrid():
    torch.manual_seed(0)
    config = transformers.Qwen3_5TextConfig(
        vocab_size=258, hidden_size=32, intermediate_size=64, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
    )  # fmt: skip
    return transformers.Qwen3_5ForCausalLM(config).eval()


async def test_a_model_that_is_not_pure_attention_is_decoded_too():
    model = hybrid()
    sampler = policy(model, slots=4)
    try:
        results = await conversations(sampler, number=5, turns=2)
        assert worst_gap(model, results) < 1e-4
    finally:
        sampler.close()


async def test_an_error_reaches_whoever_waits_and_the_policy_lives_on():
    sampler = policy(llama(), slots=2)
    try:
        with pytest.raises(ModelError, match="sampling failed"):
            await sampler.sample([999_999], Sampling(max_tokens=3), episode="a", seed=0)
        assert await sampler.sample([1], Sampling(max_tokens=3), episode="b", seed=0)
    finally:
        sampler.close()


class TestGivenUp:
    """A turn whose episode was cancelled: nobody would get it, and it would never end by itself."""

    @pytest.fixture(params=["slots", "whole sequences"])
    def sampler(self, request):
        model = llama() if request.param == "slots" else hybrid()
        made = InProcessPolicy(model, end_ids=[], fingerprint="t", slots=1, max_context=1 << 30)
        yield made
        made.close()

    @staticmethod
    async def begun_and_cancelled(sampler):
        endless = Sampling(max_tokens=1 << 30)
        turn = asyncio.create_task(sampler.sample([1, 2, 3], endless, episode="a", seed=0))
        while not sampler._active:
            await asyncio.sleep(0.01)
        turn.cancel()

    async def test_another_gets_its_slot(self, sampler):
        await self.begun_and_cancelled(sampler)
        async with asyncio.timeout(60):
            sampled = await sampler.sample([4], Sampling(max_tokens=3), episode="b", seed=0)
        assert worst_gap(sampler.model, [([4, *sampled.ids], [(1, sampled)])]) < 1e-4

    async def test_one_that_waits_for_a_slot_never_begins(self, sampler):
        await self.begun_and_cancelled(sampler)
        await self.begun_and_cancelled(sampler)
        late = asyncio.create_task(
            sampler.sample([5], Sampling(max_tokens=1 << 30), episode="late", seed=0)
        )
        await asyncio.sleep(0)
        late.cancel()
        async with asyncio.timeout(60):
            await sampler.rest()
        assert not sampler._active and not sampler._waiting

    async def test_it_is_gone_before_caches_and_weights_are(self, sampler):
        await self.begun_and_cancelled(sampler)
        async with asyncio.timeout(60):
            await sampler.rest()
            assert not sampler._active
            await self.begun_and_cancelled(sampler)
            with torch.no_grad():
                sampler.model.get_output_embeddings().weight.mul_(0.5)
            await sampler.renew("t+1", 1)
            assert not sampler._active and sampler.version == 1
            sampled = await sampler.sample([1, 2], Sampling(max_tokens=6), episode="b", seed=0)
        assert worst_gap(sampler.model, [([1, 2, *sampled.ids], [(2, sampled)])]) < 1e-4

    async def test_who_renews_may_be_cancelled_too(self):
        sampler = InProcessPolicy(
            llama(), end_ids=[], fingerprint="t", slots=2, max_context=1 << 30, apart=True
        )
        endless = Sampling(max_tokens=1 << 30)
        turn = asyncio.create_task(sampler.sample([1], endless, episode="a", seed=0))
        while not sampler._active:
            await asyncio.sleep(0.01)
        renewal = asyncio.create_task(sampler.renew("t+1", 1))
        while not sampler._errands:
            await asyncio.sleep(0.01)
        renewal.cancel()
        await asyncio.wait({renewal})
        turn.cancel()
        try:
            async with asyncio.timeout(60):
                assert await sampler.sample([4], Sampling(max_tokens=3), episode="b", seed=0)
        finally:
            sampler.close()
        assert sampler.version == 0


class TestDistribution:
    def test_top_k_and_top_p_are_renormalized(self):
        logits = torch.tensor([[4.0, 2.0, 1.0, 0.0]]).log()  # 4/7, 2/7, 1/7 (0 has no mass)
        top_k = log_distribution(logits, Sampling(top_k=2)).exp()
        assert top_k.tolist()[0] == pytest.approx([2 / 3, 1 / 3, 0, 0])
        top_p = log_distribution(logits, Sampling(top_p=0.6)).exp()
        assert top_p.tolist()[0] == pytest.approx([2 / 3, 1 / 3, 0, 0])
        only = log_distribution(logits, Sampling(top_p=0.5)).exp()
        assert only.tolist()[0] == pytest.approx([1, 0, 0, 0])

    def test_temperature(self):
        logits = torch.tensor([[1.0, 0.0]])
        half = log_distribution(logits, Sampling(temperature=0.5)).exp()[0, 0]
        assert float(half) == pytest.approx(0.880797, abs=1e-6)  # 1 / (1 + e^-2)
        greedy = log_distribution(logits, Sampling(temperature=0)).exp()
        assert greedy.tolist() == [[1.0, 0.0]]

    def test_draws_follow_the_distribution(self):
        logits = torch.tensor([[0.7, 0.2, 0.1]]).log()
        generator = torch.Generator().manual_seed(0)
        drawn = [draw(logits, [Sampling()], [generator])[0][0] for _ in range(4000)]
        shares = [drawn.count(token) / 4000 for token in range(3)]
        assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.03)


async def test_an_episode_that_is_compacted_goes_on_from_another_context():
    """Turns in the middle are left out, then all of them: old keys and values must not linger."""
    model, rng = llama(), random.Random(4)
    sampler = policy(model, slots=2)
    long = [rng.randrange(257) for _ in range(120)]
    prompts = [long, [*long[:20], *long[70:], 7], [*long[:20], 9, 9, 9], [*long[:20], 9, 9, 9, 4]]
    try:
        results = []
        for prompt in prompts:
            sampled = await sampler.sample(prompt, Sampling(max_tokens=8), episode="e", seed=1)
            results.append(([*prompt, *sampled.ids], [(len(prompt), sampled)]))
        assert worst_gap(model, results) < 1e-5
    finally:
        sampler.close()
