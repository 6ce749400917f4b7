"""A policy's weights and tokenizer from a Hugging Face directory or name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from tadpole.errors import ModelError
from tadpole.models.location import is_directory, problem, weights_hash


@dataclass(frozen=True)
class Loaded:
    """A model and its tokenizer, ready to be sampled; in float32 also to be trained."""

    model: Any
    tokenizer: Any
    fingerprint: str  # of the weights' content


def load_model(
    location: str | Path, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Loaded:
    """Load ``location``. Raises ModelError, one line, where it is no model directory.

    Weights that are to be trained must be float32: a step of 1e-6 is lost in bfloat16.
    """
    path = Path(location)
    if why := problem(str(location)):
        raise ModelError(why)
    named = not is_directory(str(location))
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, trust_remote_code=False)
        found: Any = AutoModelForCausalLM.from_pretrained(
            location, dtype=dtype, output_loading_info=True, trust_remote_code=False
        )
        model, report = found
        model.to(device)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        also = f"; a directory {location} is not here either" if named else ""
        raise ModelError(f"cannot load the model {location}: {reason}{also}") from error
    absent = sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"]))
    if absent:
        # transformers would put random weights there and say nothing.
        raise ModelError(
            f"the weights in {location} are not those of its config.json: {len(absent)} are "
            f"missing or of another shape, first {absent[0]}"
        )
    wrong = first_not_finite(model)
    if wrong is not None:
        raise ModelError(
            f"the weights in {location} are not all finite (NaN or infinity), first {wrong}: "
            "take an earlier checkpoint"
        )
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        fingerprint=weights_hash(path) if not named else str(location),
    )


@torch.no_grad()
def first_not_finite(model: Any) -> str | None:
    """The name of the first weight that holds NaN or infinity; None where all are finite."""
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and not bool(torch.isfinite(parameter).all()):
            return str(name)
    return None


def pick_device(wanted: str) -> str:
    """``auto`` is the first GPU where there is one, else the CPU."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def pick_dtype(wanted: str, device: str) -> torch.dtype:
    """``auto`` is bfloat16 where the hardware multiplies it natively, else float32."""
    if wanted == "float32":
        return torch.float32
    fast = device.startswith("cuda") or _cpu_has_bfloat16()
    return torch.bfloat16 if wanted == "bfloat16" or fast else torch.float32


def _cpu_has_bfloat16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags or "bf16" in flags.split()
