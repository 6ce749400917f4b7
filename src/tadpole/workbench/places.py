"""Where what belongs to a person is kept: never in their repository."""

import hashlib
import os
from pathlib import Path


def config_dir() -> Path:
    """``$XDG_CONFIG_HOME/tadpole``, else ``~/.config/tadpole``. Not created here."""
    return _base("XDG_CONFIG_HOME", ".config") / "tadpole"


def work_dir(root: Path) -> Path:
    """The jobs and proposals of the repository at ``root``, below ``$XDG_STATE_HOME``.

    Where that is not set: ``~/.local/state``. Not created here.
    """
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    return _base("XDG_STATE_HOME", ".local/state") / "tadpole" / "work" / f"{root.name}-{name}"


def _base(variable: str, below: str) -> Path:
    given = os.environ.get(variable, "")
    return Path(given) if given.startswith("/") else Path.home() / below
