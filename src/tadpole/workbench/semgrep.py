"""Semgrep, where it is installed and rules lie on disk: whose rules, and which program.

Guards against: rules that a patch relaxes (those of the repository are read from the base), rules
fetched from elsewhere (a registry's name is not taken: only files), and anything sent home (the
box has no network, and metrics are off).

Does not guard against: what the rules do not describe.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tadpole.repos import box
from tadpole.repos.files import Files
from tadpole.workbench.environment import Environment

TOOL = "semgrep"
_PLACES = (".semgrep.yml", ".semgrep.yaml", ".semgrep")  # in a repository
_PROGRAMS = ("pysemgrep", "semgrep")  # the first one has no launcher in between
_VARIABLE = "SEMGREP_RULES"


@dataclass(frozen=True)
class Rules:
    """Where rules lie: in the repository, or on this machine. One of the two is empty."""

    inside: str = ""  # path in the repository
    outside: Path | None = None


@dataclass(frozen=True)
class Program:
    """An installed semgrep: the environment that it belongs to, and its path in a box of that."""

    environment: Environment
    path: str


def rules(base: Files, asked: str, variables: Mapping[str, str] = os.environ) -> Rules | None:
    """``asked`` of the policy, else where repositories keep them, else ``SEMGREP_RULES``.

    None where there are none. Raises ValueError where what is asked for is not in the base.
    """
    for place in (asked,) if asked else _PLACES:
        if place in base or any(path.startswith(f"{place}/") for path in base):
            return Rules(inside=place)
    if asked:
        raise ValueError(f"there are no rules at {asked}, which .tadpole.toml names")
    given = variables.get(_VARIABLE, "")
    return Rules(outside=Path(given).resolve()) if given and Path(given).exists() else None


def program(search: str | None = None) -> Program | None:
    """Beside tadpole, else on ``search`` (default: PATH); None where it is not installed."""
    for name in _PROGRAMS:
        beside = Path(sys.prefix) / "bin" / name
        found = str(beside) if beside.is_file() else shutil.which(name, path=search)
        if found is None:
            continue
        real = Path(found).resolve()
        prefix = real.parent.parent
        if (prefix / "pyvenv.cfg").is_file():
            return Program(Environment(prefix, "semgrep's"), f"{box.VENV}/bin/{name}")
        if real.is_relative_to("/usr"):
            return Program(Environment(None, "the system's"), str(real))
    return None
