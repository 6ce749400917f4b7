"""Does the sandbox hold on this machine? Tries the break-outs and looks, trusts no version.

The break-outs, by number: P1 a planted secret and the host's variables; P2 the host's loopback;
P3 socket families that no network namespace confines; P4 namespaces, mounts, tracing and the
like; P5 the process limit, which counts one box only; P6 disk and inodes; P7 memory; P8 a daemon
after its call; P9 user, capabilities and privileges; P0 that what the box says is its own.

``python -m tadpole.sandboxes.probe [session|flat|container]`` prints the report; exit code 0:
everything held.
"""

import asyncio
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tadpole.errors import SandboxError, SandboxUnavailable
from tadpole.protocols import ExecReason, Limits, SandboxSpec
from tadpole.sandboxes.answers import Traits
from tadpole.sandboxes.session import Session
from tadpole.settings import BoxKind

_LIMITS = Limits(memory=128 << 20, processes=32, disk=16 << 20, inodes=400)
_FEWEST_FORKS = 16  # of 32: what the box's own processes leave
_MEMORY_SECONDS = 2.0
# What is asked of boxes that are isolated by others, whose promise the rest is.
_OF_OTHERS = {"P0", "P1", "P2"}


class Engine(Protocol):
    """A sandbox engine that says what it is made of."""

    @property
    def kind(self) -> BoxKind:
        """Which rung of the ladder."""
        ...

    @property
    def python(self) -> str:
        """The interpreter inside a box."""
        ...

    @property
    def made_of(self) -> str:
        """For a person. Raises SandboxUnavailable where it is not there."""
        ...

    async def start(self, spec: SandboxSpec) -> Session:
        """As SandboxEngine."""
        ...


class Hold(StrEnum):
    """How a wall stood up to being tried."""

    HELD = "held"
    WEAK = "weak"  # a bound that this machine's fallback cannot enforce; isolation holds
    BROKEN = "BROKEN"


class Bound(StrEnum):
    """What keeps a limit."""

    HARD = "hard"  # the kernel: never more
    WATCHED = "watched"  # a look every tenth of a second, then the end of the command
    NONE = "none"  # cannot be enforced here


@dataclass(frozen=True)
class Canary:
    """One break-out that was tried."""

    code: str  # P0 to P9
    name: str
    hold: Hold
    detail: str

    @property
    def held(self) -> bool:
        """Whether it did not get through."""
        return self.hold is not Hold.BROKEN


@dataclass(frozen=True)
class ProbeReport:
    """What the probe found."""

    kind: BoxKind
    made_of: str
    python: str  # runs the box
    traits: Traits
    canaries: tuple[Canary, ...]

    @property
    def held(self) -> bool:
        """Whether no canary got through."""
        return all(canary.held for canary in self.canaries)

    @property
    def broken(self) -> list[str]:
        """What got through."""
        return [f"{c.code} {c.name}: {c.detail}" for c in self.canaries if not c.held]

    @property
    def bounds(self) -> dict[str, Bound]:
        """What keeps each limit here."""
        return {
            "memory": Bound.WATCHED,  # a control group, where there is one, is a wider second bound
            "processes": Bound.HARD,
            "cpu": Bound.WATCHED,
            "disk": Bound.HARD,
            "inodes": Bound.HARD if self.traits.inodes else Bound.NONE,
            "output": Bound.HARD,
            "time": Bound.HARD,
        }

    def lines(self) -> list[str]:
        """For a person."""
        nested, overlay = self.traits.nested, self.traits.overlay
        head = [
            f"engine      {self.kind.value}: {self.made_of}",
            f"python      {self.python} (runs the box)",
            f"work tree   {'overlay, nothing copied' if overlay else 'copied to memory'}",
            f"commands    {'own process namespace' if nested else 'box process namespace'}",
            *(f"note        {note}" for note in self.traits.notes),
            *(f"limit       {name}: {bound.value}" for name, bound in self.bounds.items()),
        ]
        return head + [f"{c.hold:<12}{c.code} {c.name}: {c.detail}" for c in self.canaries]


async def probe(engine: Engine) -> ProbeReport:
    """Start boxes and try to break out of them; about two seconds.

    Raises SandboxUnavailable or SandboxStartError where none starts.
    """
    mark = f"{secrets.randbelow(10**9):09d}"
    async with _planted(engine) as (sandbox, spec, attempt), _another(engine, spec) as second:
        first, beside = await asyncio.gather(attempt(), _forks(engine, second))
        canaries = [
            *first,
            beside,
            await _memory(engine, sandbox),
            await _daemon(sandbox, mark),
            await _pristine(sandbox, spec.tree),
            _host_user(sandbox),
        ]
        return ProbeReport(
            kind=sandbox.kind,
            made_of=engine.made_of,
            python=engine.python,
            traits=sandbox.traits,
            canaries=tuple(canaries),
        )


async def check(engine: Engine) -> BoxKind:
    """The quick half of the probe, for the start of a run; some tenths of a second.

    Returns the kind that the engine's boxes are. Raises SandboxUnavailable where a break-out got
    through, and what the engine raises where no box starts.
    """
    async with _planted(engine) as (sandbox, _, attempt):
        canaries = [*await attempt(), _host_user(sandbox)]
    others = engine.kind is BoxKind.HARBOR
    asked = [canary for canary in canaries if not others or canary.code in _OF_OTHERS]
    broken = [f"{canary.name}: {canary.detail}" for canary in asked if not canary.held]
    if broken:
        raise SandboxUnavailable(
            f"the {engine.kind.value} sandbox does not hold here ({'; '.join(broken)}): "
            "`tadpole doctor` shows more"
        )
    return sandbox.kind


@asynccontextmanager
async def _planted(engine: Engine) -> AsyncIterator[tuple[Session, SandboxSpec, "_Attempt"]]:
    """A box, and beside it things that it must not reach."""
    with tempfile.TemporaryDirectory(prefix="tadpole-probe-") as directory, _listener() as port:
        tree, secret = Path(directory) / "tree", Path(directory) / "secret"
        tree.mkdir()
        (tree / "file").write_text("pristine\n")
        secret.write_text("secret")
        for path in (Path(directory), tree):
            path.chmod(0o755)  # readable for everybody: only the box keeps it out
        spec = SandboxSpec(tree, limits=_LIMITS)
        sandbox = await engine.start(spec)
        try:
            yield sandbox, spec, _Attempt(engine, sandbox, secret, port)
        finally:
            await sandbox.close()


@asynccontextmanager
async def _another(engine: Engine, spec: SandboxSpec) -> AsyncIterator[Session]:
    sandbox = await engine.start(spec)
    try:
        yield sandbox
    finally:
        await sandbox.close()


@dataclass(frozen=True)
class _Attempt:
    """The break-outs of ``canaries.py``, inside a box."""

    engine: Engine
    sandbox: Session
    secret: Path
    port: int

    async def __call__(self) -> list[Canary]:
        given = [str(self.secret), str(self.port), *sorted(os.environ)]
        rows, complaint = await _canaries(self.engine, self.sandbox, given)
        if not rows:
            return [Canary("P0", "canaries", Hold.BROKEN, f"did not run: {complaint}")]
        weak = set() if self.sandbox.traits.inodes else {"inode limit"}
        return [
            Canary(code, name, _hold(held, name in weak), detail)
            for code, name, held, detail in rows
        ]


_Rows = list[tuple[str, str, bool, str]]


async def _canaries(engine: Engine, sandbox: Session, given: list[str]) -> tuple[_Rows, str]:
    script = Path(__file__).with_name("canaries.py").read_bytes()
    argv = [engine.python, "-I", "-S", "-", *given]
    result = await sandbox.exec(argv, timeout=60, stdin=script)
    try:
        return json.loads(result.stdout.splitlines()[-1]), ""
    except (ValueError, IndexError):
        return [], result.stderr.strip()[-200:] or f"{result.reason.value} {result.code}"


def _hold(held: bool, weak: bool = False) -> Hold:
    return Hold.HELD if held else Hold.WEAK if weak else Hold.BROKEN


async def _forks(engine: Engine, sandbox: Session) -> Canary:
    """Beside another box that is at its limit."""
    rows, complaint = await _canaries(engine, sandbox, [])
    detail = rows[0][3] if rows else complaint
    words = detail.split()
    count = int(words[0]) if words and words[0].isdigit() else 0
    held = _FEWEST_FORKS <= count <= _LIMITS.processes
    return Canary("P5", "process limit of another box", _hold(held), detail)


async def _memory(engine: Engine, sandbox: Session) -> Canary:
    bomb = "import time; x = bytearray(b'x') * (512 << 20); time.sleep(20)"
    result = await sandbox.exec([engine.python, "-I", "-S", "-c", bomb], timeout=30)
    held = result.reason is ExecReason.MEMORY
    slow = "" if result.seconds < _MEMORY_SECONDS else ", late: is the machine busy?"
    detail = f"{result.reason} after {result.seconds:.2f} s{slow}"
    return Canary("P7", "memory bomb", _hold(held and not slow, weak=held), detail)


async def _daemon(sandbox: Session, mark: str) -> Canary:
    daemon = f"setsid nohup sleep 600.{mark} >/dev/null 2>&1 & disown; sleep 0.05"
    await sandbox.exec(["/bin/bash", "-c", daemon], timeout=20)
    left = sum(f"600.{mark}".encode() in line for line in command_lines())
    return Canary("P8", "daemon after its call", _hold(left == 0), f"{left} processes left")


async def _pristine(sandbox: Session, tree: Path) -> Canary:
    await sandbox.exec(["/bin/bash", "-c", "echo changed > file; rm -rf .git"], timeout=20)
    held = (tree / "file").read_text() == "pristine\n" and len(await sandbox.delta()) == 1
    detail = "untouched" if held else "changed, or change not seen"
    return Canary("P0", "host's tree", _hold(held), detail)


def _host_user(sandbox: Session) -> Canary:
    try:
        status = Path(f"/proc/{sandbox.init_pid()}/status").read_text()
    except OSError:
        return Canary("P9", "host user", Hold.HELD, "on another host (the engine's)")
    user = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
    return Canary("P9", "host user", _hold(user != 0), f"uid {user}")


def command_lines() -> list[bytes]:
    """The command lines of all processes that this user can see."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.append(Path(f"/proc/{name}/cmdline").read_bytes())
            except OSError:
                continue
    return found


@contextmanager
def _listener() -> Iterator[int]:
    """A server on the host's loopback that the box must not reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def main() -> int:
    """Print the report."""
    from tadpole.sandboxes.ladder import make

    kind = BoxKind(sys.argv[1]) if len(sys.argv) > 1 else BoxKind.AUTO
    try:
        report = asyncio.run(probe(make(kind)))
    except SandboxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("\n".join(report.lines()))
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(main())
