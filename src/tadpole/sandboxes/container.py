"""The container sandbox: podman or docker by command line, the same runner as process 1.

For machines where bubblewrap is refused and a container engine is not.

Protects against: the same as the embedded sandbox, by other means: no network, a read-only
system, no capabilities, no new privileges, our system-call filter beside the engine's, one
unprivileged user, memory and processes bounded by the engine and watched by the runner, work
tree and /tmp in memory and bounded. The container ends with the controller, also by kill -9.

Does not protect against: bugs in the host's kernel and in the container engine, which itself
runs as root unless it is rootless; an image that somebody else has filled; what rootless podman
cannot bound without cgroups (``tadpole doctor`` says which). Where the engine cannot bound the
number of files (podman), memory bounds it.
"""

import contextlib
import csv
import io
import itertools
import os
import signal
import socket
import stat
from dataclasses import replace
from pathlib import Path

from tadpole import process
from tadpole.errors import SandboxStartError
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes import identity, seccomp
from tadpole.sandboxes.binaries import box_python
from tadpole.sandboxes.bubblewrap import TOOLBOX
from tadpole.sandboxes.docker import Docker, docker, image
from tadpole.sandboxes.layout import (
    RUNNER,
    SHARED_MEMORY,
    USER,
    Bind,
    linked_directories,
    of_runner,
    of_system,
    of_task,
)
from tadpole.sandboxes.monitor import gone, said
from tadpole.sandboxes.session import Session
from tadpole.sandboxes.spawner import Process, spawner
from tadpole.settings import BoxKind

OWNER = "tadpole.owner"  # label: who may remove the container
_RUNNER_MEMORY = 64 << 20
_CURE = "`chmod -R go+rX {}` lets it (or use a rootless engine)"
# The work tree is a mount, which belongs to the container's root: git would take offence.
_GIT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
_HERE = Path(__file__).resolve().parent
_counter = itertools.count()


class ContainerEngine:
    """Starts sandboxes in containers of ``wanted``, an image's name; empty for an empty one."""

    kind = BoxKind.CONTAINER

    def __init__(self, wanted: str = "", toolbox: Path = TOOLBOX) -> None:
        self._wanted, self._toolbox = wanted, toolbox
        self._image = ""

    @property
    def python(self) -> str:
        """The interpreter inside."""
        return "python3" if self._wanted else str(box_python())

    @property
    def made_of(self) -> str:
        """What the boxes are made of, for a person. Raises SandboxUnavailable."""
        return f"{docker()}, {self._wanted or 'an empty image'}"

    async def start(self, spec: SandboxSpec) -> Session:
        """Start a box over ``spec.tree``.

        Raises SandboxUnavailable where there is no container engine or no such image,
        SandboxStartError where this one box did not start.
        """
        if spec.links:
            raise SandboxStartError("links at the top need bubblewrap: --sandbox.engine auto")
        if not spec.tree.is_dir():
            raise SandboxStartError(f"the work tree {spec.tree} is not a directory")
        found = docker()
        if not self._image:
            self._image = image(found, self._wanted)
            await reap(found)
        spec = replace(spec, env={**_GIT, **spec.env})
        binds = self._binds(spec)
        if not found.rootless:
            _refuse_closed(spec)
        name = f"tadpole-{os.getpid()}-{next(_counter)}"
        words = [*_options(found, spec, name), *_binds(binds)]
        container = _spawn(found, name, [*words, self._image, self.python, *RUNNER])
        session = Session(self.kind, container, spec.limits)
        try:
            await session.connect(spec, seccomp.build(), nested=False)
        except SandboxStartError as error:
            if isinstance(error.__cause__, PermissionError):
                raise SandboxStartError(f"{error}; {_CURE.format(spec.tree)}") from error
            raise
        return session

    def _binds(self, spec: SandboxSpec) -> list[Bind]:
        etc = _HERE / "inside" / "etc"
        own = [Bind(etc / "hosts", "/etc/hosts")]  # the engine's tells addresses of the host
        if self._wanted:
            # A login shell must not lose the variables of the box.
            own.append(Bind(etc / "profile", "/etc/profile"))
            return [*own, *of_runner(self._toolbox), *of_task(spec, None)]
        real = [Bind(Path(path), path) for path, link in linked_directories().items() if not link]
        own.append(Bind(etc / "nsswitch.conf", "/etc/nsswitch.conf"))
        task = of_task(spec, box_python())
        return [*of_system(), *real, *own, *of_runner(self._toolbox), *task]


def _refuse_closed(spec: SandboxSpec) -> None:
    """Boxes of an engine that runs as root have a user of their own, who is nobody's owner."""
    for path in (spec.tree, *spec.mounts.values()):
        mode = path.stat().st_mode
        if not mode & stat.S_IROTH or (stat.S_ISDIR(mode) and not mode & stat.S_IXOTH):
            raise SandboxStartError(
                f"a container of another user cannot read {path}; {_CURE.format(path)}"
            )


def _options(engine: Docker, spec: SandboxSpec, name: str) -> list[str]:
    limits = spec.limits
    # Work tree and /tmp are in memory too, and the watchdog inside is the exact bound.
    memory = limits.memory + 2 * limits.disk + SHARED_MEMORY + _RUNNER_MEMORY
    memory = min(memory, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    tmpfs = f"rw,exec,nosuid,nodev,mode=1777,size={limits.disk}"
    if not engine.podman:
        tmpfs += f",nr_inodes={limits.inodes}"
    user, who = _user(engine)
    # fmt: off
    words = [
        "run", "--interactive", "--rm", "--init=false", "--pull", "never", "--name", name,
        "--label", f"{OWNER}={_owner()}", "--log-driver", "none",
        "--network", "none", "--hostname", "sandbox", "--ipc", "private",
        "--read-only", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", "--security-opt", "label=disable",
        "--user", f"{user}:{user}", *who,
        "--memory", str(memory), "--memory-swap", str(memory), "--shm-size", str(SHARED_MEMORY),
        "--pids-limit", str(limits.processes + 8),
        "--ulimit", f"nproc={limits.processes + 8}:{limits.processes + 8}",
        "--ulimit", "nofile=1024:1024", "--ulimit", "core=0:0",
        "--tmpfs", f"{spec.workdir}:{tmpfs}", "--tmpfs", f"/tmp:{tmpfs}",
        "--env", "LANG=C.UTF-8", "--workdir", "/", "--entrypoint", "",
    ]
    # fmt: on
    if engine.podman:
        words += ["--read-only-tmpfs=false", "--no-hosts", "--http-proxy=false", "--systemd=false"]
    return words


def _user(engine: Docker) -> tuple[int, list[str]]:
    """Whose the processes inside are, and how to say so: never the host's root."""
    if engine.rootless:
        if not engine.podman:
            return USER, []
        # The caller, whose files it may read. A caller who is root has no rootless podman.
        return os.getuid(), ["--userns=keep-id"]
    # The engine is root whoever asks: a user of their own for each box, who owns nothing.
    return identity.unused(), []


def _binds(binds: list[Bind]) -> list[str]:
    words = []
    for bind in binds:
        if bind.source.exists():
            row = io.StringIO()
            fields = ["type=bind", f"source={bind.source}", f"target={bind.target}", "readonly"]
            csv.writer(row, lineterminator="").writerow(fields)
            words += ["--mount", row.getvalue()]
    return words


def _spawn(engine: Docker, name: str, words: list[str]) -> "Container":
    ours, theirs = socket.socketpair()
    stderr = os.memfd_create("stderr")
    with contextlib.ExitStack() as failed:
        failed.callback(os.close, stderr)
        failed.callback(ours.close)
        with theirs:
            argv = [engine.program, *words]
            try:
                # Not where the user stands: podman's monitor leaves a file where memory ran out.
                client = spawner().popen(
                    argv,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=stderr,
                    start_new_session=True,
                    cwd="/proc",
                )
            except OSError as error:
                raise SandboxStartError(f"cannot start {engine.program}: {error}") from error
        failed.pop_all()
    return Container(engine, name, client, ours, stderr)


class Container:
    """The client of one container, and this end of the wire to the runner in it."""

    def __init__(
        self,
        engine: Docker,
        name: str,
        client: Process,
        control: socket.socket,
        stderr: int,
    ) -> None:
        self.control = control
        self._engine, self._name, self._client, self._stderr_fd = engine, name, client, stderr

    async def end(self) -> None:
        """The runner ends by itself when the wire is closed; else it is removed by force."""
        if await gone(self._client, 3.0) and self._client.wait() >= 0:
            return
        await process.arun([self._engine.program, "rm", "--force", self._name], timeout=30)
        if not await gone(self._client, 10.0):
            self._client.send_signal(signal.SIGKILL)
            await gone(self._client, 10.0)

    def release(self) -> None:
        """Give the descriptor back."""
        with contextlib.suppress(OSError):
            os.close(self._stderr_fd)

    def init_pid(self) -> int | None:
        """The host's process id of the runner; None where the engine's host is another one."""
        words = [self._engine.program, "inspect", "--format", "{{.State.Pid}}", self._name]
        text = process.run(words, timeout=30).stdout.strip()
        return int(text) if text.isdigit() and int(text) > 0 else None

    def complaint(self) -> str:
        """What client and runner wrote to standard error, at most 4 KiB."""
        return said(self._stderr_fd)


def _owner() -> str:
    """This process, told from a later one of the same number."""
    return f"{os.getpid()}.{_born(os.getpid())}"


def _born(pid: int) -> str:
    """When a process started, in ticks; "" where there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as handle:
        return handle.read().rpartition(")")[2].split()[19]
    return ""


async def reap(engine: Docker) -> int:
    """Remove the containers whose owner is dead: how many there were.

    There are none but after a crash of the engine: a container ends with its owner.
    """
    listing = [engine.program, "ps", "--all", "--quiet", "--filter", f"label={OWNER}"]
    found = (await process.arun(listing, timeout=30)).stdout.decode().split()
    if not found:
        return 0
    shape = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER}"}}}}'
    told = await process.arun([engine.program, "inspect", "--format", shape, *found], timeout=30)
    rows = (line.split() for line in told.stdout.decode(errors="replace").splitlines())
    dead = [row[0] for row in rows if len(row) == 2 and not _alive(row[1])]
    if dead:
        await process.arun([engine.program, "rm", "--force", "--volumes", *dead], timeout=60)
    return len(dead)


def _alive(owner: str) -> bool:
    pid, _, born = owner.partition(".")
    return pid.isdigit() and bool(born) and _born(int(pid)) == born
