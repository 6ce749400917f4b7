"""The controller's end of one box: requests in turn, deadlines, cancellation, and the end.

Protects against: a box that hangs (a deadline on this side), dies, or talks nonsense (all of
them SandboxDied); a cancelled call that leaves its command running or the two ends out of step.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tadpole.errors import SandboxDied
from tadpole.protocols import ExecReason, ExecResult, Limits
from tadpole.sandboxes.inside import wire
from tadpole.task import FileChange
from tadpole.trace import Observation

GRACE = 15.0  # seconds past a call's own deadline before the box counts as hung
_STOP_SECONDS = 5.0  # for a cancelled command to be gone
_READ_LIMIT = 64 << 20
_DELTA_FILES, _DELTA_BYTES = 5_000, 64 << 20

_Answer = tuple[dict[str, Any], list[bytes]]


class BubblewrapSandbox:
    """One running box; made by :class:`tadpole.sandboxes.bubblewrap.BubblewrapEngine`.

    Belongs to the event loop that started it. Calls are served one after the other.
    """

    def __init__(
        self,
        *,
        process: "subprocess.Popen[bytes]",
        control: socket.socket,
        status_fd: int,
        stderr_fd: int,
        limits: Limits,
    ) -> None:
        self.notes: tuple[str, ...] = ()  # what this machine made us do differently
        self.overlay = False  # False: the tree was copied
        self.mounts = False  # False: the box may not mount, so inodes are not bounded
        self.nested = False  # False: commands have no process namespace of their own
        self.left_out = 0  # files for which the last delta had no room
        self._process, self._control = process, control
        self._status_fd, self._stderr_fd = status_fd, stderr_fd
        self._limits = limits
        self._lock = asyncio.Lock()
        self._next = 0
        self._dead: str | None = None
        self._closed = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, setup: dict[str, Any], blobs: list[bytes], timeout: float) -> None:
        """First exchange. Raises SandboxDied where the box did not come up."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._control)
        answer, _ = await self._request({"op": "setup", **setup}, blobs, timeout)
        self.overlay, self.nested = answer["overlay"], answer["nested"]
        self.mounts, self.notes = answer["mounts"], tuple(answer["notes"])

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one Leaf tool in the box."""
        header = {"op": "tool", "name": name, "arguments": dict(arguments)}
        answer, _ = await self._request(header, [], self._limits.call_seconds)
        return Observation(
            text=_clean(answer["text"]), error=answer["error"], seconds=answer["seconds"]
        )

    async def exec(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> ExecResult:
        """Run a program in the work directory; no process of it is left afterwards."""
        header = {"op": "exec", "argv": list(argv), "timeout": timeout}
        answer, blobs = await self._request(header, [stdin], timeout)
        return ExecResult(
            code=answer["code"],
            reason=ExecReason(answer["reason"]),
            stdout=blobs[0].decode("utf-8", "replace"),
            stderr=blobs[1].decode("utf-8", "replace"),
            seconds=answer["seconds"],
        )

    async def read(self, path: str) -> bytes:
        """A regular file's content. Raises FileNotFoundError; OSError (EFBIG) beyond 64 MiB."""
        header = {"op": "read", "path": path, "largest": _READ_LIMIT}
        _, blobs = await self._request(header, [], self._limits.call_seconds)
        return blobs[0]

    async def write(self, changes: Sequence[FileChange]) -> None:
        """Create, replace or delete files of the work tree.

        Raises OSError (disk of the box full, a link on the way) and ValueError for a path that
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
        await self._request({"op": "write", "changes": listed}, blobs, self._limits.call_seconds)

    async def delta(self) -> tuple[FileChange, ...]:
        """What differs from the initial tree: regular files only, sorted by path.

        Without .git, bytecode and test caches, and names that are not UTF-8. At most 5,000
        files and 64 MiB, files of the initial tree first; ``left_out`` counts the others.
        """
        header = {"op": "delta", "max_files": _DELTA_FILES, "max_bytes": _DELTA_BYTES}
        answer, blobs = await self._request(header, [], self._limits.call_seconds)
        self.left_out = answer["left_out"]
        return tuple(
            FileChange(item["path"], None if item["deleted"] else blob, item["executable"])
            for item, blob in zip(answer["files"], blobs, strict=True)
        )

    async def close(self) -> None:
        """End the box. Idempotent; returns when no process of it is left."""
        if self._closed:
            return
        self._closed = True
        await asyncio.shield(self._end("closed"))
        for descriptor in (self._status_fd, self._stderr_fd):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    # --- one request -------------------------------------------------------------------------

    async def _request(self, header: dict[str, Any], blobs: list[bytes], seconds: float) -> _Answer:
        async with self._lock:
            if self._dead is not None:
                raise SandboxDied(f"the sandbox is gone: {self._dead}")
            self._next += 1
            number = self._next
            exchange = asyncio.create_task(
                self._exchange({**header, "id": number}, blobs, seconds + GRACE)
            )
            try:
                answer, out = await asyncio.shield(exchange)
            except asyncio.CancelledError:
                await self._stop(number, exchange)
                raise
            if answer.get("kind") == "Failure":  # it cannot run commands: no use going on
                await asyncio.shield(self._end(answer["failure"]))
                raise SandboxDied(f"the sandbox died: {answer['failure']}")
        if "failure" in answer:
            raise _failure(answer)
        return answer, out

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

    async def _exchange(
        self, header: dict[str, Any], blobs: list[bytes], seconds: float
    ) -> _Answer:
        try:
            assert self._writer is not None
            self._writer.write(wire.pack(header, blobs))
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
        except (OSError, ValueError, KeyError, TypeError, asyncio.IncompleteReadError) as error:
            await self._end(str(error))
        said = self.complaint().splitlines()[-1:]
        raise SandboxDied("; ".join([f"the sandbox died: {self._dead}", *said]))

    async def _receive(self) -> _Answer:
        reader = self._reader
        assert reader is not None
        size = wire.header_size(await reader.readexactly(wire.LENGTH.size))
        header = wire.parse(await reader.readexactly(size))
        return header, [await reader.readexactly(size) for size in wire.blob_sizes(header)]

    # --- the end -----------------------------------------------------------------------------

    async def _end(self, why: str) -> None:
        """Kill everything and wait for it."""
        if self._dead is None:
            self._dead = why
        if self._writer is not None:
            self._writer.transport.abort()
        else:
            self._control.close()
        self._kill_init()
        if not await self._gone(2.0):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._gone(10.0)

    def _kill_init(self) -> None:
        """The namespace's init, not its monitor: that one then reaps it and ends by itself."""
        if self._process.poll() is not None:
            return
        pid = self.init_pid()
        if pid is None:
            self._process.send_signal(signal.SIGKILL)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def init_pid(self) -> int | None:
        """The host's process id of the box's first process; None before it is there."""
        try:
            report = os.pread(self._status_fd, 4096, 0)
        except OSError:
            return None
        for line in report.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["child-pid"])
        return None

    async def _gone(self, seconds: float) -> bool:
        """Wait for the monitor to end; False if it does not."""
        if self._process.poll() is not None:
            return True
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        descriptor = os.pidfd_open(self._process.pid)
        loop.add_reader(descriptor, ended.set)
        try:
            async with asyncio.timeout(seconds):
                await ended.wait()
            self._process.wait()
            return True
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def complaint(self) -> str:
        """What the box's processes wrote to standard error, at most 4 KiB."""
        with contextlib.suppress(OSError):
            return os.pread(self._stderr_fd, 4096, 0).decode("utf-8", "replace").strip()
        return ""


def _clean(text: str) -> str:
    """Without lone surrogates, which no tokenizer and no file takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _failure(answer: dict[str, Any]) -> Exception:
    message, code = answer["failure"], answer.get("errno")
    return OSError(code, message) if code else ValueError(message)  # ENOENT: FileNotFoundError
