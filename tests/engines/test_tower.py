"""Adapters of a text tower, trained alone, on the whole model that a server holds."""

import pytest
import torch
from safetensors.torch import load_file

from tadpole.models.adapters import WEIGHTS, add_adapters, load_adapters, save_adapters, trained
from tadpole.models.loading import load_model
from tests.engines.qwen import tiny_whole
from tests.tiny import byte_tokenizer

peft = pytest.importorskip("peft")
IDS = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])


@pytest.fixture
def whole(tmp_path):
    tiny_whole().save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def tower(whole, moved):
    model = load_model(whole).model
    add_adapters(model, 4, 16.0)
    if moved:
        torch.manual_seed(7)
        with torch.no_grad():
            for parameter in trained(model):
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS).logits


def test_adapters_are_named_as_the_whole_model_names_its_modules(whole, tmp_path):
    """A server that finds no module of an adapter's name samples without it, and says nothing."""
    mine = tower(whole, moved=True)
    assert not any("visual" in name for name, _ in mine.named_parameters())  # text alone is trained
    save_adapters(mine, tmp_path / "adapter")
    served = tiny_whole()
    modules = {f"base_model.model.{name}" for name, _ in served.named_modules()}
    named = {name.partition(".lora_")[0] for name in load_file(tmp_path / "adapter" / WEIGHTS)}
    assert named <= modules and len(named) == 31, named - modules
    theirs = peft.PeftModel.from_pretrained(served, tmp_path / "adapter")
    torch.testing.assert_close(logits(theirs), logits(mine), atol=1e-5, rtol=1e-5)
    again = tower(whole, moved=False)
    assert not torch.equal(logits(again), logits(mine))
    load_adapters(again, tmp_path / "adapter")
    assert torch.equal(logits(again), logits(mine))
