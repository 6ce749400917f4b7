"""What a box around a repository sees: where things lie in it, its mounts, its variables.

Guards against: clean copies of the library anywhere in the system (packages of its interpreters,
and those that other programs carry along below /usr), and paths that name the host or its user.
Does not guard against: a copy under another name, or in an archive; and nothing at run time,
which is the sandbox's part.
"""

import os
import re
import sys
import sysconfig
from functools import cache
from pathlib import Path

from tadpole.task import Recipe

WORKDIR = "/repo"
VENV = "/venv"
PYTHON = f"{VENV}/bin/python"
_BASE = "/opt/python"  # where an interpreter from outside /usr is seen
_STANDARD = re.compile(r"/lib(64)?/python3[.0-9]*$")


def mounts(venv: Path, hide: Path, recipe: Recipe) -> dict[str, Path]:
    """Path in the box -> path on the host. ``hide`` is a directory for what covers copies."""
    empty, nothing = hide / "empty", hide / "nothing"
    empty.mkdir(parents=True, exist_ok=True)
    nothing.touch()
    base = _base()
    seen = {VENV: venv}
    if _moved():
        seen[_BASE] = base
        seen |= {_BASE + folder.removeprefix(str(base)): empty for folder in _packages(base)}
    covered = [*_packages(Path("/usr")), *_packages(Path("/usr/local"))]
    seen |= dict.fromkeys(covered, empty)
    copies = {path for name in recipe.packages for path in modules().get(name, ())}
    for path in sorted(copies):
        if not path.startswith(tuple(f"{folder}/" for folder in covered)):
            covered.append(path)
            seen[path] = empty if os.path.isdir(path) else nothing
    return seen


@cache
def modules() -> dict[str, list[str]]:
    """Python packages, checkouts and modules below /usr by name, the standard library's aside.

    Looks once per process; takes seconds on a large system.
    """
    found: dict[str, list[str]] = {}
    for folder, names, leaves in os.walk("/usr"):
        if _STANDARD.search(folder):
            names[:] = [name for name in names if name.endswith("-packages")]
            continue
        sources = [leaf for leaf in leaves if leaf.endswith(".py")]
        if sources:  # a package, or a whole checkout with its tests
            found.setdefault(os.path.basename(folder), []).append(folder)
        if "__init__.py" not in leaves:
            for leaf in sources:
                found.setdefault(leaf.removesuffix(".py"), []).append(os.path.join(folder, leaf))
    return found


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
