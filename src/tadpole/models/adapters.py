"""Low-rank adapters (arXiv 2106.09685) inside a model, by peft; the model keeps its class.

The adapters are put into the linear layers in place, so that whoever samples or trains the model
does so as before; only their weights are trained, in float32 whatever the model's own format.
peft takes a second to import, so that is done where there are adapters at all.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tadpole.errors import ModelError

NAME = "default"  # peft's own, of the one adapter that there is
WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."  # before each weight's name in an adapter file
_CONFIG = "_tadpole_lora"  # attribute of the model


def add_adapters(model: Any, rank: int, alpha: float, seed: int = 0) -> None:
    """Put adapters of ``rank`` into all linear layers but the head, and freeze all else.

    They change nothing yet: the second factor is zero. ``seed`` draws the first.
    """
    from peft import LoraConfig, inject_adapter_in_model

    make: Any = LoraConfig  # its alpha is declared an integer; a float does just as well
    asked = make(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=sorted(_linear(model)),  # servers expect last names, not whole ones
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(getattr(model, "name_or_path", "") or ""),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(asked, model)
    for parameter in trained(model):
        parameter.data = parameter.data.float()
    setattr(model, _CONFIG, asked)


def _linear(model: Any) -> set[str]:
    """The last names of all linear layers but the head."""
    head = model.get_output_embeddings()
    return {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }


def has_adapters(model: Any) -> bool:
    """Whether :func:`add_adapters` was here."""
    return hasattr(model, _CONFIG)


def trained(model: Any) -> list[torch.nn.Parameter]:
    """The parameters that an update changes."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def save_adapters(model: Any, directory: Path) -> None:
    """Write the adapters as peft does, which is what SGLang and vLLM load. Raises OSError."""
    from peft import get_peft_model_state_dict

    directory.mkdir(parents=True, exist_ok=True)
    weights = get_peft_model_state_dict(model, adapter_name=NAME)
    named = {f"{_PREFIX}{_whole(model, k)}": tensor.contiguous() for k, tensor in weights.items()}
    save_file(named, directory / WEIGHTS)
    getattr(model, _CONFIG).save_pretrained(directory)


def _whole(model: Any, key: str) -> str:
    """The name of a weight in the files that ``model`` was loaded from.

    A text tower that was cut out of a larger model (Qwen3.5) has shorter names than its files.
    Servers hold the whole model, and vLLM passes over adapters of modules that it does not have
    without a word (vllm-project/vllm#34186): it would sample the first weights for ever.
    """
    from transformers.core_model_loading import revert_weight_conversion

    (name,) = revert_weight_conversion(model, {key: torch.empty(0)})
    return str(name)


def load_adapters(model: Any, directory: Path) -> None:
    """Give the adapters of ``model`` the values of a directory.

    Raises ModelError where they are not those of this model and rank.
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    try:
        found = load_file(directory / WEIGHTS)
        here = get_peft_model_state_dict(model)
        keys = {f"{_PREFIX}{_whole(model, key)}": key for key in here}
        named = {keys.get(name, name): tensor for name, tensor in found.items()}
        shapes = ({k: tensor.shape for k, tensor in one.items()} for one in (named, here))
        if next(shapes) != next(shapes):
            raise ValueError("they are of another model or rank")
    except (OSError, ValueError) as error:
        raise ModelError(f"the adapters in {directory} cannot be loaded: {error}") from None
    set_peft_model_state_dict(model, named, adapter_name=NAME)


def save_model(model: Any, directory: Path) -> None:
    """Write a plain Hugging Face model: adapters, where there are any, merged into the weights."""
    if has_adapters(model):
        model.save_pretrained(directory, state_dict=merged_weights(model))
    else:
        model.save_pretrained(directory)


@torch.no_grad()
def merged_weights(model: Any) -> dict[str, torch.Tensor]:
    """The weights of the plain model that computes what ``model`` does: W + (alpha / r) B A."""
    from peft.tuners.lora import LoraLayer

    merged = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in model.state_dict().items()
        if ".lora_" not in name
    }
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            adapted: Any = module  # a Linear: LoraLayer itself declares no delta
            weight = module.get_base_layer().weight
            change = adapted.get_delta_weight(NAME)
            merged[f"{name}.weight"] = (weight.float() + change.float()).to(weight.dtype)
    return merged
