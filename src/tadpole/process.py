"""The one runner of host processes: git, pip, and whatever else Tadpole calls.

Every command gets a session of its own and a closed standard input (unless bytes are given),
is killed with its whole process group at the deadline, on cancellation and on
KeyboardInterrupt, and has its output drained all the time into bounded memory. A call returns
when the command itself has ended: a grandchild that keeps the pipe open is killed, not waited
for. A process that leaves the group by ``setsid`` is out of reach here; what must not be
trusted that far runs in a sandbox.
"""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

from tadpole.bounded import BoundedOutput
from tadpole.protocols import ExecReason

_CHUNK = 1 << 16
_DRAIN_SECONDS = 0.5  # for what is left in the pipes once the command has ended

_SIGNAL_SECONDS = 1.0  # a Ctrl-C that the wait slept through is seen after so long
_CANCEL_SECONDS = 10.0  # a killed group is gone long before
_GROUP_SECONDS = 0.25  # for killed members of the group to be gone


@dataclass(frozen=True)
class Finished:
    """A command that has ended. ``code`` is 128 + signal where a signal ended it."""

    code: int
    reason: ExecReason
    stdout: bytes  # both ends of it where it was longer than the bounds
    stderr: bytes
    seconds: float
    stdout_cut: int = 0  # bytes dropped from the middle
    stderr_cut: int = 0

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with status 0."""
        return self.reason is ExecReason.EXITED and self.code == 0

    def last_line(self) -> str:
        """The last line that it printed, errors first: for one-line messages."""
        text = (self.stderr.strip() or self.stdout.strip()).decode("utf-8", "replace")
        return text.splitlines()[-1] if text else f"exit code {self.code}"


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    stdin: bytes = b"",
    head: int = 8 << 20,
    tail: int = 8 << 20,
) -> Finished:
    """Run ``argv`` (never a shell) to its end. ``timeout`` in seconds, None: no deadline.

    ``env`` replaces the environment (None: inherit). Raises FileNotFoundError or
    PermissionError where the program cannot be started.
    """
    running = _Running(argv, cwd=cwd, env=env, stdin=stdin, head=head, tail=tail)
    # Signals interrupt the main thread alone: in another one no start is ever cut in half.
    done: Future[Finished] = Future()
    try:
        _in_thread(running, timeout, done)
        # A signal that falls between CPython's last look and the lock wakes no wait without end.
        while not wait([done], timeout=_SIGNAL_SECONDS).done:
            pass
        return done.result()
    except BaseException:
        running.cancel()
        raise


async def arun(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    stdin: bytes = b"",
    head: int = 8 << 20,
    tail: int = 8 << 20,
) -> Finished:
    """As :func:`run`. Cancelling the call kills the command before CancelledError goes on."""
    running = _Running(argv, cwd=cwd, env=env, stdin=stdin, head=head, tail=tail)
    done: Future[Finished] = Future()
    try:
        _in_thread(running, timeout, done)
        return await asyncio.shield(asyncio.wrap_future(done))
    except BaseException:
        running.cancel()
        raise


def _in_thread(running: "_Running", timeout: float | None, done: "Future[Finished]") -> None:
    def work() -> None:
        try:
            done.set_result(running.finish(timeout))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="tadpole-process", daemon=True).start()


class _Running:
    """A started command. ``finish`` drains and waits; ``cancel`` may come from any thread."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        stdin: bytes,
        head: int,
        tail: int,
    ) -> None:
        words = [os.fspath(part) for part in argv]
        self._start: Callable[[], subprocess.Popen[bytes]] = lambda: subprocess.Popen(
            words,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._started = time.monotonic()
        self._input = memoryview(stdin)
        self._out, self._err = BoundedOutput(head, tail), BoundedOutput(head, tail)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Kill the group now; returns when it is gone (or was never started)."""
        with self._lock:
            if not self._ended.is_set():
                os.write(self._wake_write, b"x")
        self._ended.wait(_CANCEL_SECONDS)

    def finish(self, timeout: float | None) -> Finished:
        """Start the command and wait for its end, at most ``timeout`` seconds."""
        try:
            self._process = self._start()
            return self._finish(timeout)
        finally:
            with self._lock:
                self._ended.set()
                os.close(self._wake_read)
                os.close(self._wake_write)

    def _finish(self, timeout: float | None) -> Finished:
        reason = ExecReason.EXITED
        try:
            if not self._pump(None if timeout is None else self._started + timeout):
                reason = ExecReason.TIMEOUT
        finally:
            self._kill_group()
            code = self._process.wait()
            self._await_group()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if code < 0:
            code = 128 - code
            if reason is ExecReason.EXITED:
                reason = ExecReason.SIGNAL
        return Finished(
            code=code,
            reason=reason,
            stdout=self._out.value(),
            stderr=self._err.value(),
            seconds=time.monotonic() - self._started,
            stdout_cut=self._out.cut,
            stderr_cut=self._err.cut,
        )

    def _kill_group(self) -> None:
        # The leader is not reaped yet, so the group id cannot have been given to another.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _await_group(self) -> None:
        # Killed is not yet gone. An init that does not reap keeps them as zombies: no use waiting.
        deadline = time.monotonic() + _GROUP_SECONDS
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < deadline:
                os.killpg(self._process.pid, 0)
                time.sleep(0.001)

    def _pump(self, deadline: float | None) -> bool:
        """Move bytes until the command has ended: True; False where it had to be killed."""
        process, pidfd = self._process, os.pidfd_open(self._process.pid)
        streams = {process.stdout: self._out, process.stderr: self._err}
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(pidfd, selectors.EVENT_READ, "ended")
                selector.register(self._wake_read, selectors.EVENT_READ, "cancel")
                for stream, sink in streams.items():
                    assert stream is not None
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ, sink)
                if process.stdin is not None:
                    os.set_blocking(process.stdin.fileno(), False)
                    selector.register(process.stdin, selectors.EVENT_WRITE, "input")
                in_time = self._until(selector, deadline, stop_when_ended=True)
                self._kill_group()
                self._until(selector, time.monotonic() + _DRAIN_SECONDS, stop_when_ended=False)
                return in_time
        finally:
            os.close(pidfd)

    def _until(
        self, selector: selectors.BaseSelector, deadline: float | None, *, stop_when_ended: bool
    ) -> bool:
        ended = False
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return ended
            if not stop_when_ended and not any(
                isinstance(key.data, BoundedOutput) for key in selector.get_map().values()
            ):
                return True
            for key, _ in selector.select(left):
                if key.data == "cancel":
                    return False
                if key.data == "ended":
                    ended = True
                    selector.unregister(key.fileobj)
                elif key.data == "input":
                    self._feed(selector)
                else:
                    self._take(selector, key)
            if ended and stop_when_ended:
                return True

    def _take(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        try:
            data = os.read(key.fd, _CHUNK)
        except BlockingIOError:
            return
        if data:
            key.data.feed(data)
        else:
            selector.unregister(key.fileobj)

    def _feed(self, selector: selectors.BaseSelector) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            self._input = self._input[os.write(pipe.fileno(), self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = self._input[:0]
        if not self._input:
            selector.unregister(pipe)
            pipe.close()
