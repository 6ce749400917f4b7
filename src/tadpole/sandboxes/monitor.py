"""The processes behind one bubblewrap box: its monitor on the host, and the init inside.

Protects against: a box of which anything is left after its end, zombies included.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket

from tadpole.sandboxes.launcher import Launched
from tadpole.sandboxes.spawner import Process, spawner


class Monitor:
    """A started bubblewrap, and this end of the wire to the runner in its box."""

    def __init__(self, process: Process, control: socket.socket, status: int, stderr: int) -> None:
        self.control = control
        self._process, self._status_fd, self._stderr_fd = process, status, stderr

    async def end(self) -> None:
        """Kill everything and wait for it."""
        await self._begun(2.0)
        self._kill_init()
        # It ends with the init, which may have many files to give back on a busy machine.
        if not await gone(self._process, 15.0):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await gone(self._process, 10.0)

    async def _begun(self, seconds: float) -> None:
        """Wait until the init is known, at most ``seconds``.

        A monitor that is killed between the two leaves an init that waits for it for ever: it
        asks to die with its parent only later. (Where the controller itself is killed there:
        :mod:`tadpole.sandboxes.orphans`.)
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.init_pid() is None and self._process.poll() is None:
                    await asyncio.sleep(0.002)

    def release(self) -> None:
        """Give the descriptors back, and the launcher where there was one."""
        if isinstance(self._process, Launched):
            spawner().give_back()
        for descriptor in (self._status_fd, self._stderr_fd):
            with contextlib.suppress(OSError):
                os.close(descriptor)

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

    def complaint(self) -> str:
        """What the box's processes wrote to standard error, at most 4 KiB."""
        return said(self._stderr_fd)


def said(descriptor: int) -> str:
    """The first 4 KiB of a file in memory, as text."""
    with contextlib.suppress(OSError):
        return os.pread(descriptor, 4096, 0).decode("utf-8", "replace").strip()
    return ""


async def gone(process: Process, seconds: float) -> bool:
    """Wait for a child to end, at most ``seconds``; False if it does not."""
    if process.poll() is not None:
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
        process.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
