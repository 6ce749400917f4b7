"""Starts the sandboxes' processes from a thread that never ends.

A sandbox dies with its parent (PR_SET_PDEATHSIG), and to the kernel the parent is the *thread*
that started it: a sandbox started from a worker thread would be killed when that thread ends.
"""

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import threading
import weakref
from concurrent.futures import Future
from typing import Any

_Job = tuple[list[str], dict[str, Any], "Future[subprocess.Popen[bytes]]"]


class Spawner:
    """One thread; ``popen`` may be called from any other one."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._started: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
        threading.Thread(target=self._work, name="tadpole-spawner", daemon=True).start()
        atexit.register(self._kill_all, os.getpid())

    def popen(self, argv: list[str], **options: Any) -> "Future[subprocess.Popen[bytes]]":
        """As subprocess.Popen, from the immortal thread."""
        future: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((argv, options, future))
        return future

    def _work(self) -> None:
        while True:
            argv, options, future = self._jobs.get()
            try:
                process: Any = subprocess.Popen(argv, **options)
                self._started.add(process)
                future.set_result(process)
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
