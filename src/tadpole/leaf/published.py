"""The published harness's own prompt and schemas, where its distribution is installed.

A policy that was trained on that text meets it again word for word; nothing of it is kept here.
Only the one file that holds it is run, not the package (which imports its cluster clients).
"""

import runpy
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from tadpole.errors import ConfigError
from tadpole.leaf.tools import ToolName

_PACKAGE = "frognano"
_FILES = ("harness/leaf/tools.py", "leaf/tools.py")  # newer and older releases


def load(path: Sequence[str] | None = None) -> tuple[str, tuple[dict[str, Any], ...]]:
    """``(system message, function schemas)`` from the package on ``path`` (default: sys.path).

    Raises ConfigError, one line, where it is not installed or is another version.
    """
    spec = PathFinder.find_spec(_PACKAGE, path)
    roots = list(spec.submodule_search_locations or ()) if spec else []
    if not roots:
        raise ConfigError(
            "leaf.profile frognano needs the package frognano, which is not installed here; "
            "install it from its repository (it is not on PyPI), or use --leaf.profile full"
        )
    for file in (Path(root) / name for root in roots for name in _FILES):
        if file.is_file():
            return _text(file)
    raise ConfigError(
        f"the frognano in {roots[0]} has no {_FILES[0]}: install another version of it, or use "
        "--leaf.profile full"
    )


def _text(file: Path) -> tuple[str, tuple[dict[str, Any], ...]]:
    try:
        found = runpy.run_path(str(file))
        system, schemas = found["SYSTEM_PROMPT"], tuple(found["OPENAI_TOOLS"])
        names = {schema["function"]["name"] for schema in schemas}
    except Exception as error:  # another version's file may do anything
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{file} cannot be used as a profile: {problem}") from None
    if not isinstance(system, str):
        raise ConfigError(f"{file} has no text for SYSTEM_PROMPT")
    if names != set(ToolName):
        listed = ", ".join(sorted(map(str, names)))
        raise ConfigError(f"{file} has other tools than this Leaf: {listed}")
    return system, schemas
