"""Work in a forked process: bounded, and nothing of it left behind.

Runs inside the box: standard library only.
"""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

_WALL = 5  # deadline by the clock: this many times the processor time, and some seconds
_SLACK = 20.0


class Ended(NamedTuple):
    """How a child ended."""

    code: int  # exit status, or minus the signal that ended it
    late: bool  # that signal was ours: it was out of time by the clock
    seconds: float  # of processor time

    @property
    def signal(self) -> int:
        """The signal that ended it; 0: it ended by itself."""
        return max(0, -self.code)


def forked(work: Callable[[], int], seconds: float) -> Ended:
    """Run ``work`` in a child, which may take ``seconds`` of processor time.

    Nothing of the child is left afterwards.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            most = int(seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (most, most + 2))
            status = work()
        finally:
            os._exit(status)
    try:
        return _waited(pid, time.monotonic() + _WALL * seconds + _SLACK)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _waited(pid: int, deadline: float) -> Ended:
    late = False
    while True:
        done, status, used = os.wait4(pid, 0 if late else os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return Ended(code, late and code == -signal.SIGKILL, used.ru_utime + used.ru_stime)
        left = deadline - time.monotonic()
        if left <= 0:
            late = True
            os.killpg(pid, signal.SIGKILL)
        else:
            signal.sigtimedwait({signal.SIGCHLD}, min(left, 1.0))


def line_of(descriptor: int) -> bytes:
    """The next line of a pipe; empty where it was closed."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1)
        if not piece:
            return b""
        line += piece
    return line[:-1]


def silence() -> None:
    """Throw away what is printed from here on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)
