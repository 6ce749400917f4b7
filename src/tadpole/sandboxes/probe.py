"""Does the sandbox hold on this machine? Tries the break-outs and looks, trusts no version.

``python -m tadpole.sandboxes.probe`` prints the report; exit code 0: everything held.
"""

import asyncio
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tadpole.errors import SandboxError
from tadpole.protocols import ExecReason, Limits, SandboxSpec
from tadpole.sandboxes.binaries import box_python, bubblewrap
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.sandboxes.session import BubblewrapSandbox

_LIMITS = Limits(memory=128 << 20, processes=32, disk=16 << 20, inodes=400)


class Hold(StrEnum):
    """How a wall stood up to being tried."""

    HELD = "held"
    WEAK = "weak"  # a bound that this machine's fallback cannot enforce; isolation holds
    BROKEN = "BROKEN"


@dataclass(frozen=True)
class Canary:
    """One break-out that was tried."""

    name: str
    hold: Hold
    detail: str

    @property
    def held(self) -> bool:
        """Whether it did not get through."""
        return self.hold is not Hold.BROKEN


@dataclass(frozen=True)
class ProbeReport:
    """What the probe found. ``notes`` are fallbacks that this machine made necessary."""

    bubblewrap: str
    python: str
    overlay: bool  # False: work trees are copied
    nested: bool  # False: commands share the box's process namespace
    canaries: tuple[Canary, ...]
    notes: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether no canary got through."""
        return all(canary.held for canary in self.canaries)

    def lines(self) -> list[str]:
        """For a person."""
        head = [
            f"bubblewrap  {self.bubblewrap}",
            f"python      {self.python} (runs the box)",
            f"work tree   {'overlay, nothing copied' if self.overlay else 'copied to memory'}",
            f"commands    {'own process namespace' if self.nested else 'box process namespace'}",
            *(f"note        {note}" for note in self.notes),
        ]
        return head + [
            f"{canary.hold:<12}{canary.name}: {canary.detail}" for canary in self.canaries
        ]


async def probe(engine: BubblewrapEngine | None = None) -> ProbeReport:
    """Start a box and try to break out of it; about a second.

    Raises SandboxUnavailable or SandboxStartError where none starts.
    """
    found = bubblewrap()
    mark = f"{secrets.randbelow(10**9):09d}"
    with tempfile.TemporaryDirectory(prefix="tadpole-probe-") as directory, _listener() as port:
        tree, secret = Path(directory) / "tree", Path(directory) / "secret"
        tree.mkdir()
        (tree / "file").write_text("pristine\n")
        secret.write_text(mark)
        for path in (Path(directory), tree):
            path.chmod(0o755)  # readable for everybody: only the box keeps it out
        sandbox = await (engine or BubblewrapEngine()).start(SandboxSpec(tree, limits=_LIMITS))
        try:
            canaries = [
                *await _inside(sandbox, secret, port),
                await _memory(sandbox),
                await _daemon(sandbox, mark),
                await _pristine(sandbox, tree),
                _host_user(sandbox),
            ]
        finally:
            await sandbox.close()
        return ProbeReport(
            bubblewrap=f"{'.'.join(map(str, found.version))} ({found.path})",
            python=str(box_python()),
            overlay=sandbox.overlay,
            nested=sandbox.nested,
            canaries=tuple(canaries),
            notes=sandbox.notes,
        )


async def _inside(sandbox: BubblewrapSandbox, secret: Path, port: int) -> list[Canary]:
    script = Path(__file__).with_name("canaries.py").read_bytes()
    argv = [str(box_python()), "-I", "-S", "-", str(secret), str(port), *sorted(os.environ)]
    result = await sandbox.exec(argv, timeout=60, stdin=script)
    try:
        rows = json.loads(result.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return [Canary("canaries", Hold.BROKEN, f"did not run: {result.stderr.strip()[-200:]}")]
    # Only a tmpfs that the box may mount itself can be bounded in inodes.
    weak = {"inode limit"} if not sandbox.mounts else set()
    return [Canary(name, _hold(held, name in weak), detail) for name, held, detail in rows]


def _hold(held: bool, weak: bool = False) -> Hold:
    return Hold.HELD if held else Hold.WEAK if weak else Hold.BROKEN


async def _memory(sandbox: BubblewrapSandbox) -> Canary:
    bomb = "import time; x = bytearray(b'x') * (512 << 20); time.sleep(20)"
    result = await sandbox.exec([str(box_python()), "-I", "-S", "-c", bomb], timeout=30)
    held = result.reason is ExecReason.MEMORY
    return Canary("memory bomb", _hold(held), f"{result.reason} after {result.seconds:.2f} s")


async def _daemon(sandbox: BubblewrapSandbox, mark: str) -> Canary:
    daemon = f"setsid nohup sleep 600.{mark} >/dev/null 2>&1 & disown; sleep 0.05"
    await sandbox.exec(["/bin/bash", "-c", daemon], timeout=20)
    left = sum(f"600.{mark}".encode() in line for line in command_lines())
    return Canary("daemon after its call", _hold(left == 0), f"{left} processes left")


async def _pristine(sandbox: BubblewrapSandbox, tree: Path) -> Canary:
    await sandbox.exec(["/bin/bash", "-c", "echo changed > file; rm -rf .git"], timeout=20)
    held = (tree / "file").read_text() == "pristine\n" and len(await sandbox.delta()) == 1
    return Canary(
        "host's tree", _hold(held), "untouched" if held else "changed, or change not seen"
    )


def _host_user(sandbox: BubblewrapSandbox) -> Canary:
    pid = sandbox.init_pid()
    status = Path(f"/proc/{pid}/status").read_text()
    user = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
    return Canary("host user", _hold(user != 0), f"uid {user}")


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
    try:
        report = asyncio.run(probe())
    except SandboxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("\n".join(report.lines()))
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(main())
