"""Where a model is meant to be: a directory here, or a name that the Hugging Face hub knows."""

import difflib
import hashlib
from pathlib import Path


def is_directory(model: str) -> bool:
    """Whether ``model`` is meant as a directory, be it there or mistyped.

    A name of the hub is ``NAME`` or ``OWNER/NAME``; what begins at a directory that is here, or
    has more parts, is none.
    """
    path = Path(model)
    if path.exists() or model.startswith((".", "/", "~")) or model.endswith("/"):
        return True
    return len(path.parts) > 2 or (len(path.parts) == 2 and path.parent.is_dir())


def problem(model: str) -> str:
    """Why ``model`` cannot be loaded, one line with what to give instead; empty where it may be.

    Names of the hub are not looked up.
    """
    path = Path(model)
    if (path / "config.json").is_file():
        return ""
    alike = _alike(path)
    if not is_directory(model):
        return f"there is no model directory {model} here; did you mean {alike}?" if alike else ""
    what = "no config.json in it" if path.is_dir() else "there is no such directory"
    meant = f"did you mean {alike}? Else " if alike else ""
    return (
        f"{model} is no model directory ({what}): {meant}give one that transformers' "
        "save_pretrained wrote, a model name, openai:NAME or embedded"
    )


def weights_hash(directory: Path) -> str:
    """The first 16 hex digits of the hash over a directory's weight files."""
    digest = hashlib.sha256()
    for file in sorted(directory.glob("*.safetensors")):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def _alike(path: Path) -> str:
    """A model directory beside ``path`` with nearly its name."""
    try:
        there = {p.name: p for p in path.parent.iterdir() if (p / "config.json").is_file()}
    except OSError:
        return ""
    found = difflib.get_close_matches(path.name, there, n=1)
    return str(there[found[0]]) if found else ""
