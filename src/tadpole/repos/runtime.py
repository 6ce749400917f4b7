"""The environment a repository runs in: a virtual environment, built once, never changed.

It holds the library's dependencies, pytest, coverage and what the tests need. The library itself
is *not* in it: only its metadata and console scripts are, so that whatever runs imports the
checkout. Inside a box it lies at ``VENV``, and its paths say so wherever they are written down.

Guards against: a library imported from anywhere but the checkout, installed newer copies of it,
pip caches and host paths in sight of the agent. Does not guard against: a distribution on the
index that does harm when pip builds it (pip runs on the host, as it does for anyone).
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tadpole.errors import TaskError
from tadpole.repos import venv
from tadpole.repos.pip import Pip
from tadpole.repos.shelf import Shelf
from tadpole.task import Recipe, Source

_TOOLS = ("pytest", "coverage")
_TAG = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
_PACKAGING = ("pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True)
class Project:
    """What an environment is made for."""

    source: Source
    recipe: Recipe
    tree: Path  # pristine

    @property
    def name(self) -> str:
        """Its distribution where that is known beforehand."""
        return self.source.location if self.source.kind == "pypi" else ""

    @property
    def packaging(self) -> dict[str, str]:
        """Content of the files that say how it is installed, as hexadecimal bytes by name."""
        paths = (self.tree / name for name in _PACKAGING)
        return {path.name: path.read_bytes().hex() for path in paths if path.is_file()}

    @property
    def identity(self) -> list[str]:
        """What of the project itself ends up in the environment: its metadata."""
        if self.source.kind == "pypi":
            return [self.source.location, self.source.version]
        return [json.dumps(self.packaging)]

    @property
    def runtime_key(self) -> str:
        """Names the locked environment: 64 hex digits; its requirements must be pinned."""
        body = [2, _TAG, self.identity, self.recipe.requirements, self.recipe.import_paths]
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()

    def pinned(self, requirements: Sequence[str]) -> "Project":
        """The same with these requirements."""
        return replace(self, recipe=replace(self.recipe, requirements=tuple(requirements)))


@dataclass(frozen=True)
class Runtime:
    """A built environment."""

    key: str  # 64 hex digits
    venv: Path
    recipe: Recipe  # with every requirement pinned
    licence: str  # of the project
    generated: Path | None  # files of the project that only its build makes


class Runtimes:
    """The shelf of environments."""

    def __init__(self, root: Path, pip: Pip) -> None:
        self._shelf = Shelf(root)
        self._pip = pip

    async def resolve(self, project: Project) -> Runtime:
        """The environment of a loose recipe: resolved once, then always the same.

        Raises SourceError.
        """
        recipe = project.recipe
        text = json.dumps([_TAG, project.identity, recipe.requirements, recipe.import_paths])
        name = hashlib.sha256(text.encode()).hexdigest()

        async def build(beside: Path) -> None:
            loose = (*_TOOLS, *recipe.requirements)
            pins = await self._build(beside, project, loose, deps=True)

            async def keep(place: Path) -> None:
                for part in list(beside.iterdir()):
                    part.replace(place / part.name)

            await self._shelf.get(project.pinned(pins).runtime_key, keep)
            for part in beside.iterdir():
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            (beside / "pins.json").write_text(json.dumps(pins))

        place = await Shelf(self._shelf.root / "resolved").get(name, build)
        return await self.get(project.pinned(json.loads((place / "pins.json").read_text())))

    async def get(self, project: Project) -> Runtime:
        """The environment of a pinned recipe. Raises SourceError, TaskError."""
        wanted = project.recipe.requirements

        async def build(beside: Path) -> None:
            pins = await self._build(beside, project, wanted, deps=False)
            if pins != wanted:
                odd = ", ".join(sorted(set(pins) ^ set(wanted)))
                raise TaskError(f"the locked environment cannot be rebuilt here: {odd}")

        place = await self._shelf.get(project.runtime_key, build)
        told, made = place / "licence.txt", place / "generated"
        return Runtime(
            key=project.runtime_key,
            venv=place / "venv",
            recipe=project.recipe,
            licence=told.read_text() if told.is_file() else "",
            generated=made if made.is_dir() else None,
        )

    async def _build(
        self, place: Path, project: Project, requirements: Sequence[str], *, deps: bool
    ) -> tuple[str, ...]:
        """Fill ``place``; the exact requirements that the environment came to hold."""
        made, scratch = place / "venv", place / "project"
        python = await venv.make(made)
        target = _installable(project, scratch)
        what = project.source.location
        await self._pip.install(python, [*requirements, *target], deps=deps, what=what)
        shutil.rmtree(scratch, ignore_errors=True)
        pins, itself = venv.split(made, project.name, scratch)
        if itself is not None:
            (place / "licence.txt").write_text(venv.licence(itself))
            roots = project.recipe.import_paths
            tree = project.tree / (roots[0] if roots else ".")
            venv.take_out(itself, made, tree, place / "generated" / tree.relative_to(project.tree))
        await venv.seal(made, project.recipe.import_paths)
        return pins


def _installable(project: Project, scratch: Path) -> list[str]:
    """What pip gets for the project itself: a release, a copy that it may write to, or nothing."""
    source = project.source
    if source.kind == "pypi":
        return [f"{source.location}=={source.version}"]
    told = b"".join(map(bytes.fromhex, project.packaging.values()))
    signs = (b"[project]", b"[build-system]", b"[metadata]")
    if "setup.py" not in project.packaging and not any(sign in told for sign in signs):
        return []
    shutil.copytree(project.tree, scratch)
    return [str(scratch)]
