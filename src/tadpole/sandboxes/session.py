"""The controller's end of one box: requests in turn, deadlines, cancellation, and the end.

Protects against: a box that hangs (a deadline on this side), dies, or talks nonsense (all of
them SandboxDied); a cancelled call that leaves its command running or the two ends out of step;
a box that names files outside of its work tree. Nothing of the work tree is ever looked up on
this side: what comes out of a box is bytes and names.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tadpole.errors import SandboxDied, SandboxError, SandboxStartError
from tadpole.protocols import ExecResult, LeftOut, Limits, SandboxSpec
from tadpole.sandboxes import answers
from tadpole.sandboxes.inside import wire
from tadpole.sandboxes.layout import environment
from tadpole.settings import BoxKind
from tadpole.task import FileChange
from tadpole.trace import Observation

GRACE = 15.0  # seconds past a call's own deadline before the box counts as hung
START_SECONDS = 45.0  # a busy machine, a large tree to copy
_STOP_SECONDS = 5.0  # for a cancelled command to be gone
_READ_LIMIT = 64 << 20
_DEEPEST = 50  # levels of a tool's arguments: the box's Python has a stack of its own

_Answer = tuple[dict[str, Any], list[bytes]]
_T = TypeVar("_T")


class Processes(Protocol):
    """What is behind a box on this machine."""

    control: socket.socket  # this end of the wire to the runner

    def init_pid(self) -> int | None:
        """The host's process id of the box's first process, where that can be told."""
        ...

    def complaint(self) -> str:
        """What they wrote to standard error."""
        ...

    async def end(self) -> None:
        """Kill everything and wait for it; the wire is closed already."""
        ...

    def release(self) -> None:
        """Give descriptors and the like back; comes once, after ``end``."""
        ...


class Session:
    """One running box, whichever engine made it.

    Belongs to the event loop that started it. Calls are served one after the other.
    """

    def __init__(self, kind: BoxKind, processes: Processes, limits: Limits) -> None:
        self.kind = kind
        self.traits = answers.Traits()
        self.left_out: tuple[LeftOut, ...] = ()  # of the last delta
        self._processes, self._limits = processes, limits
        self._lock = asyncio.Lock()
        self._next = 0
        self._dead: str | None = None
        self._closing: asyncio.Task[None] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(
        self, spec: SandboxSpec, program: bytes, *, bwrap: str = "", nested: bool | None = None
    ) -> None:
        """First exchange. ``program`` is the system-call filter, ``bwrap`` one inside the box.

        ``nested`` None: the box finds out. Closes the box and raises SandboxStartError where it
        did not come up.
        """
        limits = spec.limits
        setup = {
            "op": "setup",
            "workdir": spec.workdir,
            "environment": environment(spec),
            "bwrap": bwrap,
            "nested": nested,
            "limits": {
                "disk": limits.disk,
                "inodes": limits.inodes,
                "memory": limits.memory,
                "processes": limits.processes,
                "cpu_seconds": limits.cpu_seconds,
                "call_seconds": limits.call_seconds,
                "output_head": limits.output_head,
                "output_tail": limits.output_tail,
            },
        }
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=self._processes.control)
            self.traits = await self._request(setup, [program], START_SECONDS, answers.traits)
        except BaseException as error:
            with contextlib.suppress(Exception):
                await self.close()
            if isinstance(error, SandboxError | OSError | ValueError):
                raise SandboxStartError(f"the sandbox did not start: {error}") from error
            raise

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one Leaf tool in the box. Raises TypeError for arguments that JSON cannot hold."""
        if _deep(arguments):
            return Observation(text="ValueError: the arguments are nested too deeply", error=True)
        header = {"op": "tool", "name": name, "arguments": dict(arguments)}
        return await self._request(header, [], self._limits.call_seconds, answers.observation)

    async def exec(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> ExecResult:
        """Run a program in the work directory; no process of it is left afterwards.

        Raises ValueError for an empty ``argv`` and for words that no program can be given.
        """
        if not argv or isinstance(argv, str):
            raise ValueError(f"a program and its arguments are a list of words, not {argv!r}")
        header = {"op": "exec", "argv": list(argv), "timeout": timeout}
        return await self._request(header, [stdin], timeout, answers.result)

    async def read(self, path: str) -> bytes:
        """A regular file's content. Raises FileNotFoundError; OSError (EFBIG) beyond 64 MiB."""
        header = {"op": "read", "path": path, "largest": _READ_LIMIT}
        return await self._request(header, [], self._limits.call_seconds, lambda _, blobs: blobs[0])

    async def write(self, changes: Sequence[FileChange]) -> None:
        """Delete files of the work tree, then create and replace others.

        Raises OSError (disk of the box full, a link or a file on the way, a file where a directory
        still holds one) and ValueError for a path that
        leads out of the work tree.
        """
        listed = [
            {
                "path": change.path,
                "deleted": change.content is None,
                "executable": change.executable,
            }
            for change in changes
        ]
        blobs = [change.content or b"" for change in changes]
        header = {"op": "write", "changes": listed}
        await self._request(header, blobs, self._limits.call_seconds, lambda *_: None)

    async def delta(self) -> tuple[FileChange, ...]:
        """What differs from the initial tree: regular files only, sorted by path.

        Without .git, bytecode and test caches. At most 5,000 files and 64 MiB, files of the
        initial tree first. A symbolic link is never in it, wherever it leads: what an agent
        links must not be followed by whoever applies the change. ``left_out`` says what of all
        that there was.
        """
        header = {
            "op": "delta",
            "max_files": answers.DELTA_FILES,
            "max_bytes": answers.DELTA_BYTES,
        }
        found, self.left_out = await self._request(
            header, [], self._limits.call_seconds, answers.changes
        )
        return found

    def init_pid(self) -> int | None:
        """The host's process id of the box's first process, where that can be told."""
        return self._processes.init_pid()

    def complaint(self) -> str:
        """What the processes behind the box wrote to standard error."""
        return self._processes.complaint()

    async def close(self) -> None:
        """End the box. Idempotent; returns when no process of it is left.

        Cancelled, it goes on by itself, and the next call waits for it.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._end("closed")
        finally:
            self._processes.release()

    # --- one request -------------------------------------------------------------------------

    async def _request(
        self,
        header: dict[str, Any],
        blobs: list[bytes],
        seconds: float,
        read: Callable[[dict[str, Any], list[bytes]], _T],
    ) -> _T:
        """Ask, and ``read`` the answer. What ``read`` cannot read is the box's death."""
        async with self._lock:
            if self._dead is not None:
                raise SandboxDied(f"the sandbox is gone: {self._dead}")
            self._next += 1
            number = self._next
            header = {**header, "id": number}
            frame = self._frame(header, blobs)  # what cannot be sent harms nothing
            exchange = asyncio.create_task(self._exchange(header, frame, seconds + GRACE))
            try:
                answer, out = await asyncio.shield(exchange)
            except asyncio.CancelledError:
                await self._stop(number, exchange)
                raise
            if answer.get("kind") == "Failure":  # it cannot run commands: no use going on
                raise await self._died(str(answer.get("failure")))
            try:
                failure = answers.failure(answer) if "failure" in answer else None
                result = None if failure else read(answer, out)
            except answers.NONSENSE as error:
                raise await self._died(f"it talks nonsense ({error!r})") from error
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]

    async def _died(self, why: str) -> SandboxDied:
        await asyncio.shield(self._end(why))
        return SandboxDied(f"the sandbox died: {why}")

    async def _stop(self, number: int, exchange: "asyncio.Task[_Answer]") -> None:
        """Make a cancelled request end, or the box with it."""
        try:
            assert self._writer is not None
            if not exchange.done():
                self._writer.write(wire.pack({"op": "cancel", "id": number}, []))
                await asyncio.wait([exchange], timeout=_STOP_SECONDS)
        finally:
            if not exchange.done():
                exchange.cancel()
                await asyncio.shield(self._end("a cancelled call did not stop"))
            elif not exchange.cancelled():
                exchange.exception()  # has been seen

    def _frame(self, header: dict[str, Any], blobs: list[bytes]) -> bytes:
        return wire.pack(header, blobs)

    async def _exchange(self, header: dict[str, Any], frame: bytes, seconds: float) -> _Answer:
        try:
            assert self._writer is not None
            self._writer.write(frame)
            async with asyncio.timeout(seconds):
                await self._writer.drain()
            while True:
                async with asyncio.timeout(seconds):
                    answer, out = await self._receive()
                if answer["id"] != header["id"]:
                    raise ValueError("answer to another request")
                if "busy" not in answer:
                    return answer, out
                seconds = float(answer["busy"]) + self._limits.call_seconds + GRACE
        except TimeoutError:
            await self._end(f"no answer to {header['op']} in {seconds:g} s")
        except (OSError, asyncio.IncompleteReadError, *answers.NONSENSE) as error:
            await self._end(str(error))
        said = self.complaint().splitlines()[-1:]
        raise SandboxDied("; ".join([f"the sandbox died: {self._dead}", *said]))

    async def _receive(self) -> _Answer:
        reader = self._reader
        assert reader is not None
        size = wire.header_size(await reader.readexactly(wire.LENGTH.size))
        header = wire.parse(await reader.readexactly(size))
        return header, [await reader.readexactly(size) for size in wire.blob_sizes(header)]

    async def _end(self, why: str) -> None:
        """Close the wire, kill everything and wait for it."""
        if self._dead is None:
            self._dead = why
        if self._writer is not None:
            self._writer.transport.abort()
        else:
            self._processes.control.close()
        await self._processes.end()


def _deep(value: object) -> bool:
    """Whether lists and objects are nested deeper than a box may be asked to read."""
    level = [value]
    for _ in range(_DEEPEST):
        mappings = (one.values() for one in level if isinstance(one, Mapping))
        lists = (one for one in level if isinstance(one, list | tuple))
        level = [below for several in (*mappings, *lists) for below in several]
        if not level:
            return False
    return True
