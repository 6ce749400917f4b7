"""Low-rank adapters: only they are trained, they are sampled as they are trained, they go on."""

import asyncio
import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from tadpole.config import load
from tadpole.errors import ConfigError, ModelError
from tadpole.models.inprocess import InProcessPolicy
from tadpole.models.location import weights_hash
from tadpole.prepared import Trains, prepare_policy
from tadpole.protocols import Sampling
from tadpole.rl.batch import Sample
from tadpole.rl.checkpoint import (
    ADAPTER,
    CheckpointState,
    checkpoints,
    load_weights,
    save_checkpoint,
)
from tadpole.rl.learner import Learner
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.trace import Tokens
from tests.rl.climbing import make_climb, tasks
from tests.tiny import byte_tokenizer, llama

pytest.importorskip("peft")

from tadpole.models.adapters import (
    add_adapters,
    load_adapters,
    merged_weights,
    save_adapters,
    save_model,
    trained,
)

IDS = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])


def adapted(rank=4, alpha=16.0, moved=True):
    """A model whose adapters do something."""
    model = llama()
    add_adapters(model, rank, alpha)
    if moved:
        torch.manual_seed(7)
        with torch.no_grad():
            for parameter in trained(model):
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def sample(advantage=1.0):
    return Sample(
        Tokens(
            ids=(1, 2, 3, 4, 5),
            logprobs=(0.0, 0.0, -3.0, -3.0, -3.0),
            loss_mask=(0, 0, 1, 1, 1),
            versions=(-1, -1, 0, 0, 0),
        ),
        advantage,
    )


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_new_adapters_change_nothing():
    assert torch.equal(logits(adapted(moved=False)), logits(llama()))
    assert not torch.allclose(logits(adapted()), logits(llama()))


def test_an_update_moves_the_adapters_alone():
    model, plain = adapted(moved=False), llama()
    learner = Learner(model, lr=1e-2, max_mean_gap=1.0)
    assert len(learner.parameters) == 2 * 7 * 2  # two factors, seven linear layers, two blocks
    assert all(parameter.dtype is torch.float32 for parameter in learner.parameters)
    for _ in range(2):  # the first moves the second factor, the second both
        learner.update([sample()])
    after = model.state_dict()
    for name, tensor in plain.state_dict().items():
        stem, _, leaf = name.rpartition(".")
        mine = after.get(name, after.get(f"{stem}.base_layer.{leaf}"))
        assert torch.equal(mine, tensor), name
    fresh = adapted(moved=False).state_dict()
    moved = [
        name for name in after if ".lora_" in name and not torch.equal(after[name], fresh[name])
    ]
    assert len(moved) == 28


def test_merged_they_are_a_plain_model_that_does_the_same(tmp_path):
    model = adapted()
    assert set(merged_weights(model)) == set(llama().state_dict())
    save_model(model, tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(plain) is type(llama()) and not any("lora" in n for n, _ in plain.named_modules())
    torch.testing.assert_close(logits(plain), logits(model), atol=1e-4, rtol=1e-4)


def test_saved_they_are_what_peft_loads(tmp_path):
    from peft import PeftModel

    model = adapted(rank=3, alpha=6.0)
    save_adapters(model, tmp_path)
    theirs = PeftModel.from_pretrained(llama(), tmp_path)
    assert torch.equal(logits(theirs), logits(model))
    mine = adapted(rank=3, alpha=6.0, moved=False)
    load_adapters(mine, tmp_path)
    assert torch.equal(logits(mine), logits(model))
    with pytest.raises(ModelError, match="of another model or rank"):
        load_adapters(adapted(rank=4), tmp_path)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_adapters(mine, tmp_path / "none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_sampled_as_they_are_trained(dtype):
    """max |p - q| between the sampler and the learner, before and after an update."""
    model = adapted()
    sampler = InProcessPolicy(model, end_ids=[257], fingerprint="t", slots=6, dtype=dtype)
    learner = Learner(model, lr=1e-2, dtype=dtype, max_mean_gap=1.0)
    try:
        for version in (1, 2):
            drawn = await asyncio.gather(
                *(
                    sampler.sample([1, 2, 3], Sampling(max_tokens=8), episode=str(n), seed=n)
                    for n in range(6)
                )
            )
            stats = learner.update(
                [
                    Sample(
                        Tokens(
                            ids=(1, 2, 3, *one.ids),
                            logprobs=(0.0, 0.0, 0.0, *one.logprobs),
                            loss_mask=(0, 0, 0, *[1] * len(one.ids)),
                            versions=(-1, -1, -1, *[0] * len(one.ids)),
                        ),
                        (-1.0) ** n,
                    )
                    for n, one in enumerate(drawn)
                ]
            )
            assert stats.max_abs_pq < (1e-4 if dtype is torch.float32 else 0.02)
            sampler.refresh(f"t+{version}", version)
    finally:
        sampler.close()


async def test_a_climb_goes_on_with_them(tmp_path):
    """Interrupted after its second update it comes to the weights of one that was not."""

    async def climb(path, updates):
        made = make_climb(path, updates, {"lora": {"rank": 4}})
        try:
            saved = await made.run(tasks(), lambda row: None)
        finally:
            made.policy.close()
        return made, saved

    whole, saved = await climb(tmp_path / "whole", 4)
    await climb(tmp_path / "cut", 2)
    cut, again = await climb(tmp_path / "cut", 4)
    for name in ("model.safetensors", f"{ADAPTER}/adapter_model.safetensors"):
        assert (saved / name).read_bytes() == (again / name).read_bytes()
    rows = [run.rundir.rows(TABLE, UpdateRow) for run in (whole, cut)]
    assert [row.loss for row in rows[0]] == [row.loss for row in rows[1]]
    assert max(row.max_abs_pq or 0 for row in rows[0]) < 1e-5
    # The checkpoint is a plain model: what an evaluation or the next round loads.
    plain = AutoModelForCausalLM.from_pretrained(saved)
    torch.testing.assert_close(logits(plain), logits(whole.learner.model), atol=1e-4, rtol=1e-4)
    assert len(checkpoints(tmp_path / "cut" / "checkpoints")) == 2


def test_torn_adapters_are_not_gone_on_from(tmp_path):
    model = adapted()
    with torch.no_grad():
        trained(model)[0][0, 0] = torch.nan
    save_adapters(model, tmp_path / ADAPTER)
    with pytest.raises(Exception, match="not all finite"):
        load_weights(adapted(), tmp_path)


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_servers_are_handed_the_adapters(tmp_path, kind):
    llama().save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    model = str(tmp_path / "model")
    config = load(
        {
            "policy.model": model, "policy.engine": kind, "run.dir": str(tmp_path),
            "policy.urls": "http://127.0.0.1:1", "train.lora.rank": "2", "leaf.profile": "compact",
            "policy.threads": "1",
        }
    )  # fmt: skip
    prepared = prepare_policy(config, tmp_path, trains=Trains.ADAPTERS)
    try:
        handed = tmp_path / "engine" / "handed"
        prepared.policy._hand_over(handed)
        said = json.loads((handed / "adapter_config.json").read_text())
        assert (said["r"], said["lora_alpha"], said["peft_type"]) == (2, 32.0, "LORA")
        assert said["base_model_name_or_path"] == model
        assert {"q_proj", "down_proj"} <= set(said["target_modules"])
        load_adapters(prepared.loaded.model, handed)
        assert [place.engine._adapter for place in prepared.policy._places] == [True]
    finally:
        prepared.close()


def test_new_adapters_are_drawn_by_the_seeds_of_the_run_and_of_its_climb(tmp_path):
    llama().save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    base = {"policy.model": str(tmp_path / "model"), "policy.threads": "1", "train.lora.rank": "2",
            "leaf.profile": "compact", "run.dir": str(tmp_path)}  # fmt: skip

    def drawn(**seeds):
        given = {f"{section}.seed": str(seed) for section, seed in seeds.items()}
        prepared = prepare_policy(load(base | given), tmp_path, trains=Trains.ADAPTERS)
        prepared.close()
        return torch.cat([parameter.flatten() for parameter in trained(prepared.loaded.model)])

    first = drawn()
    assert torch.equal(first, drawn(run=0, train=0))
    assert not torch.equal(first, drawn(run=1)) and not torch.equal(first, drawn(train=1))
    assert not torch.equal(drawn(run=1), drawn(train=1))


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_servers_get_the_adapters_of_a_checkpoint_too(tmp_path, kind):
    """They hold the first model: whole weights would be lost on them, or stay under adapters."""
    llama().save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    config = load(
        {
            "policy.model": str(tmp_path / "model"), "policy.engine": kind, "policy.threads": "1",
            "policy.urls": "http://127.0.0.1:1", "train.lora.rank": "2", "leaf.profile": "compact",
            "run.dir": str(tmp_path), "train.lora.alpha": "4",
        }
    )  # fmt: skip
    model = adapted(2, 4.0)
    state = CheckpointState(update=1, fingerprint="x")
    saved = save_checkpoint(tmp_path / "checkpoints", model, byte_tokenizer(), None, state)
    ids = torch.tensor([[1, 2, 3]])
    for weights, expected in ((saved, model), (None, llama())):
        prepared = prepare_policy(config, tmp_path, weights)
        try:
            prepared.policy._hand_over(tmp_path / "engine/handed")
            assert [place.engine._adapter for place in prepared.policy._places] == [True]
            if weights:
                assert prepared.policy.fingerprint == weights_hash(saved)
            other = llama()
            add_adapters(other, 2, 4.0)
            load_adapters(other, tmp_path / "engine/handed")
            with torch.no_grad():
                torch.testing.assert_close(other(ids).logits, expected(ids).logits)
        finally:
            prepared.close()


@pytest.mark.parametrize(
    ("also", "instead"),
    [
        ({"train.rounds": "2"}, "train.rounds 1"),
        ({"warmup.enabled": "on"}, "warmup.enabled off"),
        ({"policy.model": "embedded"}, "warmup.enabled off"),  # auto: this one is warmed up
        ({"policy.model": "embedded", "train.rounds": "2"}, "warmup.enabled off"),
    ],
)
def test_servers_must_have_the_weights_that_adapters_belong_to(also, instead):
    served = {
        "policy.model": "some/model", "policy.engine": "sglang", "policy.urls": "http://x",
        "train.lora.rank": "8",
    }  # fmt: skip
    assert load(served).train.lora.rank == 8
    with pytest.raises(ConfigError, match=f"servers do not have the weights .* {instead} or"):
        load(served | also)
    load(served | also | {"warmup.enabled": "off", "train.rounds": "1"})
