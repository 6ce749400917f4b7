"""Podman or docker on this machine, by command line: which, whose, and the image for a box."""

import hashlib
import io
import json
import os
import shutil
import tarfile
from dataclasses import dataclass
from functools import cache

from tadpole import process
from tadpole.errors import SandboxUnavailable
from tadpole.sandboxes.layout import linked_directories

_PROGRAMS = ("podman", "docker")
_PULL_SECONDS = 1800.0


@dataclass(frozen=True)
class Docker:
    """A container engine that answers. ``rootless``: its root is nobody's root on the host."""

    program: str  # podman or docker
    version: str
    rootless: bool

    @property
    def podman(self) -> bool:
        """Whether it is podman, whose options differ in places."""
        return os.path.basename(self.program) == "podman"

    def __str__(self) -> str:
        name = os.path.basename(self.program)
        return f"{name} {self.version}{' (rootless)' if self.rootless else ''}"


@cache
def docker() -> Docker:
    """The first of podman and docker that works.

    Raises SandboxUnavailable with what each of them says.
    """
    refusals = []
    for name in _PROGRAMS:
        program = shutil.which(name)
        if program is None:
            refusals.append(f"{name} is not installed")
            continue
        done = process.run([program, "info", "--format", "{{json .}}"], timeout=30)
        try:
            if done.ok:
                return _read(program, json.loads(done.stdout))
            refusals.append(f"{name}: {done.last_line()}")
        except (ValueError, KeyError, TypeError):  # docker reports a missing daemon as a success
            refusals.append(f"{name}: {done.last_line()[:200]}")
    raise SandboxUnavailable(
        f"no container engine answers ({'; '.join(refusals)}): start docker's service, or "
        "`apt install podman`"
    )


def _read(program: str, info: "dict[str, dict[str, dict[str, bool]]]") -> Docker:
    if "host" in info:  # podman
        version, rootless = str(info["version"]["Version"]), info["host"]["security"]["rootless"]
        return Docker(program, version, bool(rootless))
    if not info.get("ServerVersion"):
        raise KeyError("ServerVersion")
    options = " ".join(map(str, info.get("SecurityOptions") or ()))
    remapped = "name=rootless" in options or "name=userns" in options
    return Docker(program, str(info["ServerVersion"]), remapped)


def image(engine: Docker, wanted: str) -> str:
    """The name of an image that is there: ``wanted``, fetched if need be, or the empty one.

    Raises SandboxUnavailable where it cannot be had.
    """
    content = _empty_image()
    name = wanted or f"tadpole-box:{hashlib.sha256(content).hexdigest()[:12]}"
    if process.run([engine.program, "image", "inspect", name], timeout=60).ok:
        return name
    if wanted:
        done = process.run([engine.program, "pull", wanted], timeout=_PULL_SECONDS)
        if not done.ok:
            raise SandboxUnavailable(
                f"sandbox.image {wanted} is not there and cannot be fetched: {done.last_line()}"
            )
        return wanted
    done = process.run([engine.program, "import", "-", name], timeout=120, stdin=content)
    if not done.ok:
        raise SandboxUnavailable(f"{engine} cannot import an empty image: {done.last_line()}")
    return name


def _empty_image() -> bytes:
    """Directories to mount on, and the system's links into /usr; no program and no data."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("usr", "etc", "proc", "dev", "sys", "tmp", "run", ".box"):
            entry = tarfile.TarInfo(name)
            # What is mounted at a directory gets the directory's mode.
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for path, target in linked_directories().items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            if target is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            else:
                entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return out.getvalue()
