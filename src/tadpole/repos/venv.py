"""A virtual environment on disk: made with the host's paths, then sealed for the box.

The project itself loses its modules, so that whatever runs imports the checkout; its metadata
and console scripts stay. Sealing writes the box's paths over the host's: from then on the host
cannot run it.
"""

import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tadpole import process
from tadpole.errors import SourceError
from tadpole.repos.address import shown
from tadpole.repos.box import VENV, WORKDIR, interpreter

_SECONDS = 120.0
# Costs more to compile than it saves; but pytest itself imports some lexers whenever it starts.
_RARELY_IMPORTED = r"/pygments/(lexers|styles)/(?!__init__|_mapping|diff|python)|/tests?/"
_FEW = 1500  # modules that are compiled before a second process has paid off
_MODULES = (".py", ".so", ".pyd", ".json", ".txt")


def site(venv: Path) -> Path:
    """Its site-packages."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return venv / "lib" / name / "site-packages"


async def make(venv: Path) -> Path:
    """Make an environment without pip; its interpreter. Raises SourceError."""
    await _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    return venv / "bin" / "python"


def normal(name: str) -> str:
    """A distribution's name in its one spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def split(venv: Path, name: str, place: Path) -> tuple[tuple[str, ...], Distribution | None]:
    """What is installed, as exact requirements, and apart from it the project.

    The project is the distribution ``name``, or where that is empty the one that was installed
    from the directory ``place``: others may come from an address of their own as well.
    """
    pins, project = [], None
    for one in list(importlib.metadata.distributions(path=[str(site(venv))])):
        origin = json.loads(one.read_text("direct_url.json") or "{}")  # PEP 610
        if normal(one.name) == name or (not name and _is_at(origin, place)):
            project = one
        else:
            pins.append(_exact(one, origin))
    return tuple(sorted(pins)), project


def _is_at(origin: Mapping[str, Any], place: Path) -> bool:
    where = unquote(urlsplit(origin.get("url", "")).path)
    return "dir_info" in origin and os.path.normpath(where) == os.path.normpath(place)


def _exact(one: Distribution, origin: Mapping[str, Any]) -> str:
    """The requirement that gives this distribution again."""
    url, at = shown(origin.get("url", "")), origin.get("vcs_info")
    part = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    if at:
        return f"{normal(one.name)} @ {at['vcs']}+{url}@{at['commit_id']}{part}"
    if "archive_info" in origin and not url.startswith("file:"):
        return f"{normal(one.name)} @ {url}{part}"
    return f"{normal(one.name)}=={one.version}"


def take_out(project: Distribution, venv: Path, tree: Path, generated: Path) -> None:
    """Remove a project's modules; what its build made and ``tree`` lacks goes to ``generated``."""
    root = site(venv)
    for file in project.files or ():
        path = Path(os.path.normpath(str(project.locate_file(file))))
        info = any(part.endswith(".dist-info") for part in file.parts)
        if info or path.parent == venv / "bin" or not path.is_relative_to(venv):
            continue
        if path.is_relative_to(root) and path.suffix in _MODULES and path.is_file():
            inside = path.relative_to(root)
            if len(inside.parts) > 1 and (tree / inside.parts[0]).is_dir():
                _keep_generated(path, inside, tree, generated)
        path.unlink(missing_ok=True)
        folder = path.parent
        while folder not in (root, venv) and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
    for info_name in {f.parts[0] for f in project.files or () if ".dist-info" in f.parts[0]}:
        # Hashes of the pristine files would tell which one was changed; the other names the host.
        (root / info_name / "RECORD").unlink(missing_ok=True)
        (root / info_name / "direct_url.json").unlink(missing_ok=True)


def _keep_generated(path: Path, inside: Path, tree: Path, generated: Path) -> None:
    if not (tree / inside).exists():
        (generated / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, generated / inside)


def licence(project: Distribution) -> str:
    """The name of a distribution's licence, or nothing."""
    expression, short, classifiers = (
        project.metadata.get_all(key) or []
        for key in ("License-Expression", "License", "Classifier")
    )
    tails = [c.rsplit("::", 1)[1].strip() for c in classifiers if c.startswith("License")]
    named = [name.strip() for name in short if len(name) < 60 and "\n" not in name]  # not its text
    return next(iter([*expression, *named, "; ".join(tails)]), "")


async def seal(venv: Path, import_paths: Sequence[str]) -> None:
    """Point it at the checkout, compile it, and write the paths of the box into it."""
    lines = [f"{WORKDIR}/{path}".removesuffix("/.") for path in import_paths]
    (site(venv) / "checkout.pth").write_text("\n".join(lines) + "\n")
    # Checked against nothing at run time, so no clock can make it stale.
    jobs = 2 if sum(1 for _ in site(venv).rglob("*.py")) > _FEW else 1
    compiled = ("-m", "compileall", "-q", f"-j{jobs}", "--invalidation-mode=unchecked-hash")
    where = ("-s", str(venv), "-p", VENV, "-x", _RARELY_IMPORTED, str(site(venv)))
    await _run(str(venv / "bin" / "python"), *compiled, *where, check=False)
    inside = interpreter()
    (venv / "pyvenv.cfg").write_text(
        f"home = {inside.parent}\ninclude-system-site-packages = false\n"
        f"version = {sys.version.split()[0]}\nexecutable = {inside}\n"
    )
    for path in sorted((venv / "bin").iterdir()):
        if path.is_symlink():
            if path.readlink().is_absolute():
                path.unlink()
                path.symlink_to(inside)
        elif path.is_file():
            path.write_bytes(path.read_bytes().replace(str(venv).encode(), VENV.encode()))
    for path in venv.rglob("*"):  # readable by whoever the box runs as
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


async def _run(*argv: str, check: bool = True) -> None:
    done = await process.arun(argv, timeout=_SECONDS)
    if check and not done.ok:
        raise SourceError(
            f"cannot make a virtual environment ({done.last_line()}): on Debian and Ubuntu, "
            "apt install python3-venv"
        )
