"""Starts the sandboxes' processes from a thread that never ends.

A sandbox dies with its parent (PR_SET_PDEATHSIG), and to the kernel the parent is the *thread*
that started it: a sandbox started from a worker thread would be killed when that thread ends.
"""

import atexit
import contextlib
import os
import queue
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tadpole.sandboxes.launcher import Launched, Launcher
from tadpole.sandboxes.orphans import sweep

Process = subprocess.Popen[bytes] | Launched

_Job = tuple[Callable[[], Any], "Future[Any]"]


class Spawner:
    """One thread; its methods may be called from any other one."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._started: weakref.WeakSet[Process] = weakref.WeakSet()
        self._launcher = Launcher()
        self._swept = False
        threading.Thread(target=self._work, name="tadpole-spawner", daemon=True).start()
        atexit.register(self._kill_all, os.getpid())

    def popen(self, argv: list[str], **options: Any) -> Process:
        """As subprocess.Popen, from the immortal thread."""
        return self._start(lambda: subprocess.Popen(argv, **options))

    def launch(
        self, plan: dict[str, Any], control: socket.socket, stderr: int, status: int
    ) -> Process:
        """As :meth:`Launcher.start`, from the immortal thread."""
        return self._start(lambda: self._launcher.start(plan, control, stderr, status))

    def give_back(self) -> None:
        """What ``launch`` has started has ended."""
        self._in_thread(self._launcher.give_back)

    def _start(self, job: Callable[[], Process]) -> Process:
        process: Process = self._in_thread(job)
        if not self._swept:
            self._swept = True
            self._jobs.put((sweep, Future()))  # nobody waits for it
        self._started.add(process)
        return process

    def _in_thread(self, job: Callable[[], Any]) -> Any:
        # Waited for here, a few milliseconds, so that a cancellation cannot come between.
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future.result()

    def _work(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

    def _kill_all(self, owner: int) -> None:
        if os.getpid() != owner:
            return
        for process in list(self._started):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)


_lock = threading.Lock()
_spawners: dict[int, Spawner] = {}


def spawner() -> Spawner:
    """The spawner of this process (a forked child has none of its parent's threads)."""
    with _lock:
        owner = os.getpid()
        if owner not in _spawners:
            _spawners[owner] = Spawner()
        return _spawners[owner]
