"""What a box around a repository sees: where things lie in it, its mounts, its variables.

Guards against: other copies of a library in the interpreter's or the system's own packages, and
paths that name the host or its user. Does not guard against anything at run time: that is the
sandbox's part.
"""

import os
import sys
import sysconfig
from pathlib import Path

from tadpole.task import Recipe

WORKDIR = "/repo"
VENV = "/venv"
PYTHON = f"{VENV}/bin/python"
_BASE = "/opt/python"  # where an interpreter from outside /usr is seen


def mounts(venv: Path, empty: Path) -> dict[str, Path]:
    """Path in the box -> path on the host; ``empty`` is a directory that hides packages."""
    base = _base()
    seen = {VENV: venv}
    if _moved():
        seen[_BASE] = base
        seen |= {_BASE + folder.removeprefix(str(base)): empty for folder in _packages(base)}
    system = [*_packages(Path("/usr")), *_packages(Path("/usr/local"))]
    return seen | dict.fromkeys(system, empty)


def environment(recipe: Recipe) -> dict[str, str]:
    """The variables of a box."""
    variables = {
        "PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": VENV,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    if _moved() and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        variables["LD_LIBRARY_PATH"] = f"{_BASE}/lib"  # its own search path names the host's
    return variables | dict(recipe.env)


def interpreter() -> Path:
    """The interpreter behind this one, as a box sees it."""
    executable = Path(os.path.realpath(sys.executable))
    return Path(_BASE) / executable.relative_to(_base()) if _moved() else executable


def _base() -> Path:
    return Path(os.path.realpath(sys.base_prefix))


def _moved() -> bool:
    return not _base().is_relative_to("/usr")


def _packages(prefix: Path) -> list[str]:
    """Where an interpreter below ``prefix`` keeps packages that no virtual environment uses."""
    found = (prefix / "lib").glob("python3*/*-packages")
    return sorted(str(path) for path in found if path.is_dir() and not path.is_symlink())
