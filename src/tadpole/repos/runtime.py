"""The environment a repository runs in: a virtual environment, built once, never changed.

It holds the library's dependencies, pytest, coverage and what the tests need. The library itself
is *not* in it: only its metadata and console scripts are, so that whatever runs imports the
checkout. Inside a box it lies at ``VENV``, and its paths say so wherever they are written down.

Guards against: a library imported from anywhere but the checkout, installed newer copies of it,
pip caches and host paths in sight of the agent. Does not guard against: a distribution on the
index that does harm when pip builds it (pip runs on the host, as it does for anyone).
"""

import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tadpole import process
from tadpole.errors import SourceError, TaskError
from tadpole.repos import files
from tadpole.repos.files import Files
from tadpole.repos.pip import Pip
from tadpole.repos.shelf import Shelf
from tadpole.task import Recipe, Source

WORKDIR = "/repo"
VENV = "/venv"
PYTHON = f"{VENV}/bin/python"
_BASE = "/opt/python"  # where an interpreter from outside /usr is seen
_TOOLS = ("pytest", "coverage")
_TAG = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
_PACKAGING = ("pyproject.toml", "setup.py", "setup.cfg")
_VENV_SECONDS = 120.0
_RARELY_IMPORTED = r"/pygments/(lexers|styles)/|/tests?/"  # costs more to compile than it saves


@dataclass(frozen=True)
class Project:
    """What an environment is made for."""

    source: Source
    recipe: Recipe
    tree: Path  # pristine
    found: Files  # its content

    @property
    def identity(self) -> list[str]:
        """What of the project itself ends up in the environment: its metadata."""
        if self.source.kind == "pypi":
            return [self.source.location, self.source.version]
        names = [name for name in _PACKAGING if name in self.found]
        return [files.digest({name: self.found[name] for name in names})]

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
        licence = (place / "licence.txt").read_text()
        return Runtime(project.runtime_key, place / "venv", project.recipe, licence)

    async def _build(
        self, place: Path, project: Project, requirements: Sequence[str], *, deps: bool
    ) -> tuple[str, ...]:
        """Fill ``place``; the exact requirements that the environment came to hold."""
        venv, scratch = place / "venv", place / "project"
        await _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
        python = venv / "bin" / "python"
        target = _installable(project, scratch)
        await self._pip.install(python, [*requirements, *target], deps=deps)
        shutil.rmtree(scratch, ignore_errors=True)
        pins, licence = [], ""
        for one in list(importlib.metadata.distributions(path=[str(_site(venv))])):
            if _is_project(one, project.source):
                licence = _licence(one)
                _remove_modules(one, venv)
            else:
                pins.append(f"{_normal(one.name)}=={one.version}")
        (place / "licence.txt").write_text(licence)
        lines = [f"{WORKDIR}/{path}".removesuffix("/.") for path in project.recipe.import_paths]
        (_site(venv) / "checkout.pth").write_text("\n".join(lines) + "\n")
        # Checked against nothing at run time, so no clock can make it stale.
        compiled = ("-m", "compileall", "-q", "-j2", "--invalidation-mode=unchecked-hash")
        where = ("-s", str(venv), "-p", VENV, "-x", _RARELY_IMPORTED, str(_site(venv)))
        await _run(str(python), *compiled, *where, check=False)
        _relocate(venv)
        return tuple(sorted(pins))


def mounts(venv: Path, empty: Path) -> dict[str, Path]:
    """What a box needs to see; ``empty`` is an empty directory that hides foreign packages."""
    base = _base()
    seen = {VENV: venv}
    inside = base
    if not base.is_relative_to("/usr"):
        seen[_BASE] = base
        inside = Path(_BASE)
    library = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (f"lib/{library}/site-packages", "lib/python3/dist-packages"):
        if (base / path).is_dir():
            seen[str(inside / path)] = empty
    return seen


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
    if not _base().is_relative_to("/usr") and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        variables["LD_LIBRARY_PATH"] = f"{_BASE}/lib"  # its own search path names the host's
    return variables | dict(recipe.env)


def _base() -> Path:
    return Path(os.path.realpath(sys.base_prefix))


def _site(venv: Path) -> Path:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return venv / "lib" / name / "site-packages"


def _installable(project: Project, scratch: Path) -> list[str]:
    """What pip gets for the project itself: a release, a copy that it may write to, or nothing."""
    source, found = project.source, project.found
    if source.kind == "pypi":
        return [f"{source.location}=={source.version}"]
    told = b"".join(found[name].content or b"" for name in _PACKAGING if name in found)
    signs = (b"[project]", b"[build-system]", b"[metadata]")
    if "setup.py" not in found and not any(sign in told for sign in signs):
        return []
    shutil.copytree(project.tree, scratch)
    return [str(scratch)]


def _is_project(one: importlib.metadata.Distribution, source: Source) -> bool:
    if source.kind == "pypi":
        return _normal(one.name) == source.location
    return one.read_text("direct_url.json") is not None


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _remove_modules(one: importlib.metadata.Distribution, venv: Path) -> None:
    """Leave metadata and console scripts, nothing that could be imported."""
    for file in one.files or ():
        path = Path(os.path.normpath(str(one.locate_file(file))))
        scripts = path.parent == venv / "bin"
        metadata = any(part.endswith(".dist-info") for part in file.parts)
        if not scripts and not metadata and path.is_relative_to(venv):
            path.unlink(missing_ok=True)
            folder = path.parent
            while folder != _site(venv) and folder != venv and not any(folder.iterdir()):
                folder.rmdir()
                folder = folder.parent
    for info in {f.parts[0] for f in one.files or () if f.parts[0].endswith(".dist-info")}:
        (_site(venv) / info / "direct_url.json").unlink(missing_ok=True)  # names the host's path


def _relocate(venv: Path) -> None:
    """Write the paths inside a box over those of the host: the host cannot run it any more."""
    home, executable = _base(), Path(os.path.realpath(sys.executable))
    inside = executable
    if not home.is_relative_to("/usr"):
        inside = Path(_BASE) / executable.relative_to(home)
    (venv / "pyvenv.cfg").write_text(
        f"home = {inside.parent}\ninclude-system-site-packages = false\n"
        f"version = {sys.version.split()[0]}\nexecutable = {inside}\n"
    )
    for path in sorted((venv / "bin").iterdir()):
        if path.is_symlink():
            if os.path.isabs(os.readlink(path)):
                path.unlink()
                path.symlink_to(inside)
        elif path.is_file():
            content = path.read_bytes().replace(str(venv).encode(), VENV.encode())
            path.write_bytes(content)
    for folder, names, leaves in os.walk(venv):
        for name in (*names, *leaves):
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


def _licence(one: importlib.metadata.Distribution) -> str:
    expression, short, tails = (
        one.metadata.get_all(name) or [] for name in ("License-Expression", "License", "Classifier")
    )
    known = [tail.rsplit("::", 1)[1].strip() for tail in tails if tail.startswith("License")]
    named = [name.strip() for name in short if len(name) < 60 and "\n" not in name]  # not its text
    return next(iter([*expression, *named, "; ".join(known)]), "")


async def _run(*argv: str, check: bool = True) -> None:
    done = await process.arun(argv, timeout=_VENV_SECONDS)
    if check and not done.ok:
        raise SourceError(f"cannot make a virtual environment: {done.last_line()}")
