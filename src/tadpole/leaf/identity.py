"""Names the harness: a pass rate holds for one policy in one harness, and for no other."""

import hashlib
import json
from pathlib import Path

from tadpole.leaf import toolbox
from tadpole.protocols import Sampling
from tadpole.settings import LeafConfig


def harness_identity(settings: LeafConfig, sampling: Sampling, system: str) -> str:
    """16 hex digits over limits, sampling, system message and the source of the tools."""
    sources = sorted(Path(toolbox.__file__).parent.glob("*.py"))
    tools = b"\0".join(source.read_bytes() for source in sources)
    told = {
        "settings": settings.model_dump(mode="json"),
        "sampling": vars(sampling),
        "system": system,
        "tools": hashlib.sha256(tools).hexdigest(),
    }
    text = json.dumps(told, sort_keys=True)
    return hashlib.sha256(f"harness 1 {text}".encode()).hexdigest()[:16]
