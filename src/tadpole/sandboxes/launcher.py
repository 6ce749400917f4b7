"""The host's end of :mod:`tadpole.sandboxes.launch`: one process for all boxes that root has up.

It is there while a box is there, and gone with the last one.
"""

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tadpole.sandboxes.launch import LARGEST

_SCRIPT = Path(__file__).with_name("launch.py")


class Launched:
    """A child process that somebody else has started for us; as much of Popen as is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        if self.returncode is None:
            self._wait(os.WNOHANG)
        return self.returncode

    def wait(self) -> int:
        """Wait for its end."""
        while self.returncode is None:
            self._wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, flags: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:
            self.returncode = -signal.SIGKILL  # reaped by somebody else: not known
            return
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)


class Launcher:
    """Belongs to one thread: the kernel takes that one for the parent of all boxes."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: socket.socket | None = None
        self._boxes = 0

    def start(
        self, plan: dict[str, Any], control: socket.socket, stderr: int, status: int
    ) -> Launched:
        """Start a box. Raises OSError. Whatever starts is to be given back once it has ended."""
        data = marshal.dumps(plan)
        if len(data) > LARGEST:
            raise OSError("too many mounts for one sandbox")
        fresh = self._wire is None
        try:
            pid = self._asked(data, [control.fileno(), stderr, status])
        except OSError:
            self._end()
            if fresh:
                raise
            return self.start(plan, control, stderr, status)  # somebody has killed it meanwhile
        self._boxes += 1
        return Launched(pid)

    def _asked(self, data: bytes, descriptors: list[int]) -> int:
        """The process id of a new child. Raises OSError."""
        if self._wire is None:
            self._wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SCRIPT)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=descriptors[1],
                    env={"PATH": "/usr/bin:/bin"},
                    cwd="/",
                )
        socket.send_fds(self._wire, [data], descriptors)
        pid = int(self._wire.recv(100) or b"0")
        if pid <= 0:
            raise OSError(-pid, os.strerror(-pid) if pid else "the launcher has ended")
        return pid

    def give_back(self) -> None:
        """A box has ended. Without any left, the process ends too."""
        self._boxes -= 1
        if self._boxes == 0:
            self._end()

    def _end(self) -> None:
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.shutdown(socket.SHUT_RDWR)  # a forked child of ours may have it too
            self._wire.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._process.kill()
            self._process.wait()
        self._wire = self._process = None
