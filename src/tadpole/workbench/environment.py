"""The box around a person's repository: its own virtual environment, read-only, and no network.

Guards against: anything of the host in the box but the system, one virtual environment, and the
interpreter behind it (a directory without one is not shown, whatever the environment says). Does
not guard against: what lies inside that environment. A token in one of its files is readable in
the box, and goes nowhere but where ``--allow`` lets the model reach.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tadpole.errors import UsageError
from tadpole.protocols import Limits, SandboxSpec
from tadpole.repos import box
from tadpole.repos.recipe import discover
from tadpole.repos.testrun import with_reporter
from tadpole.repos.venv import normal
from tadpole.sandboxes.binaries import box_python
from tadpole.task import Recipe
from tadpole.workbench.base import Base

_PLUGINS = {"pytest-cov", "pytest-xdist", "pytest-randomly", "hypothesis"}
LIMITS = Limits(call_seconds=300.0, memory=4 << 30)


@dataclass(frozen=True)
class Environment:
    """What the repository's programs run in. ``venv`` None: the system's Python alone."""

    venv: Path | None
    found_by: str  # for a person

    @property
    def python(self) -> str:
        """The interpreter, as the box sees it."""
        return box.PYTHON if self.venv else str(box_python())

    def installed(self) -> set[str]:
        """Names of the distributions in it; none where it is the system's Python."""
        places = self.venv.glob("lib*/python*/site-packages") if self.venv else ()
        infos = (info for place in places for info in place.glob("*.dist-info"))
        return {normal(info.name.removesuffix(".dist-info").rpartition("-")[0]) for info in infos}

    def spec(self, tree: Path, recipe: Recipe) -> SandboxSpec:
        """The box over ``tree`` (never written to), with the test reporter at hand."""
        roots = [f"{box.WORKDIR}/{path}".removesuffix("/.") for path in recipe.import_paths]
        env = {
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            # Before an editable install, which names the person's own work tree.
            "PYTHONPATH": ":".join(roots),
            "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }
        mounts: dict[str, Path] = {}
        if self.venv is not None:
            env |= {"VIRTUAL_ENV": box.VENV, "PATH": f"{box.VENV}/bin:{env['PATH']}"}
            mounts = _mounts(self.venv)
        spec = SandboxSpec(tree, mounts, env | dict(recipe.env), box.WORKDIR, LIMITS)
        return with_reporter(spec)


def find(root: Path, given: Path | None, variables: Mapping[str, str] = os.environ) -> Environment:
    """The environment: as given, the active one, or ``.venv`` or ``venv`` in the repository.

    Tadpole's own, where that is merely active, gives way to the repository's. Raises UsageError
    for one that is none.
    """
    if given is not None:
        if not _is_one(given):
            raise UsageError(f"{given} is no virtual environment (no pyvenv.cfg): give another")
        return Environment(given.absolute(), "as given")
    active = Path(variables.get("VIRTUAL_ENV") or "/nonexistent")
    # Not one that leads back to the repository: that would show all of it, ignored files too.
    here = [
        root / name
        for name in (".venv", "venv")
        if _is_one(root / name) and not root.resolve().is_relative_to((root / name).resolve())
    ]
    ours = active.resolve() == Path(sys.prefix).resolve()
    if _is_one(active) and not (ours and here):
        return Environment(active, "the active one")
    if here:
        return Environment(here[0], "in the repository")
    return Environment(None, "none found: the system's Python (name one with --venv)")


def recipe_of(base: Base, environment: Environment) -> Recipe:
    """How the repository's tests are run, from its files.

    Its requirements are the installed plugins that would come between tests and reporter.
    Raises SourceError where its pyproject.toml cannot be read.
    """
    there = environment.installed() & _PLUGINS
    if not any(b"hypothesis" in (file.content or b"") for file in base.files.values()):
        there -= {"hypothesis"}  # costs its import
    return replace(discover(base.files), requirements=tuple(sorted(there)))


def _is_one(path: Path) -> bool:
    return (path / "pyvenv.cfg").is_file()


def _mounts(venv: Path) -> dict[str, Path]:
    seen = {box.VENV: venv.resolve()}
    for line in (venv / "pyvenv.cfg").read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home" and value.strip():
            given = Path(value.strip()).parent
            for prefix in {given, given.resolve()}:
                if not prefix.is_dir() or prefix.is_relative_to("/usr"):
                    continue
                if prefix == Path("/") or prefix.is_relative_to("/tmp"):
                    raise UsageError(
                        f"the interpreter of {venv} lies in {prefix}, which no box can show: "
                        "make the environment with another Python"
                    )
                # The file may be the repository's: it must not name just any directory of ours.
                if not any(prefix.glob("lib*/python3*/os.py")):
                    raise UsageError(
                        f"{venv / 'pyvenv.cfg'} says that Python is in {prefix}, and there is "
                        "none: make the environment anew, or name another with --venv"
                    )
                seen[str(prefix)] = prefix.resolve()
    return seen
