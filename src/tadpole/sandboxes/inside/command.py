"""Runs one command of the box to its end: bounded, watched, and nothing left behind.

Standard library only and Python 3.6+: this file runs inside the sandbox.

Each command gets a bubblewrap of its own with a new user and process namespace, no
capabilities, the system-call filter and resource limits. Killing the init of that namespace
ends everything in it, whatever it did with sessions, signals or double forks. Where namespaces
do not nest (``nested`` False: a kernel that refuses, a container) the command runs in the box's
own process namespace under the same limits, and everything but the runner is killed after it;
the runner is the init of that namespace, which nothing in it can signal.
"""

import _signal as signal
import errno
import itertools
import os
import resource
import select
import time

import census
import confine
import shared
import wire
from bounded import BoundedOutput
from child import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Result = dict[str, Any]  # code, reason, stdout, stderr, their cuts, seconds

_CHUNK = 1 << 16
_TICK = 0.1  # seconds between two looks at the memory
_FLOOD = 64 << 20  # bytes of output after which a command is killed


class Failure(Exception):
    """The command could not be run at all: the box's fault, not the command's."""


class Commands:
    """What all commands of one box have in common."""

    def __init__(
        self,
        *,
        workdir: str,
        bwrap: str,
        program: bytes,  # the system-call filter
        environment: "dict[str, str]",
        limits: "dict[str, int]",
        nested: "bool | None",
        wake: int,  # descriptor that becomes readable when ``interrupted`` is worth asking
        interrupted: "Callable[[], bool]",  # whether to stop the command in progress
    ) -> None:
        self.workdir, self.bwrap, self.program = workdir, bwrap, program
        self.environment, self.limits, self.nested = environment, limits, nested
        self.wake, self.interrupted = wake, interrupted

    def try_nesting(self) -> "list[str]":
        """Find out whether namespaces inside namespaces work here; returns notes."""
        self.nested = True
        try:
            _Run(self, ["/bin/true"], timeout=20.0, stdin=b"", head=1000, tail=1000).finish()
            return []
        except Failure as error:
            self.nested = False
            return [f"commands share the box's process namespace ({error})"]

    def run(
        self, argv: "list[str]", *, timeout: float, stdin: bytes, head: int, tail: int
    ) -> "Result":
        """A dict: code, reason, stdout, stderr, stdout_cut, stderr_cut, seconds."""
        path = self.environment.get("PATH", os.defpath)
        places = [self.workdir] if "/" in argv[0] else path.split(os.pathsep)
        if "\0" not in argv[0] and not any(map(_runs, places, itertools.repeat(argv[0]))):
            text = f"{argv[0]}: command not found\n".encode("utf-8", "surrogateescape")
            stderr = BoundedOutput(head, tail)
            stderr.feed(text)
            return _result(127, "exited", BoundedOutput(0, 0), stderr, 0.0)
        running = _Run(self, argv, timeout=timeout, stdin=stdin, head=head, tail=tail)
        try:
            return running.finish()
        finally:
            if census.alone():
                shared.clear(bool(self.nested))


def _runs(place: str, name: str) -> bool:
    path = os.path.join(place, name)
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _result(
    code: int, reason: str, stdout: BoundedOutput, stderr: BoundedOutput, seconds: float
) -> "Result":
    return {
        "code": code,
        "reason": reason,
        "stdout": stdout.value(),
        "stderr": stderr.value(),
        "stdout_cut": stdout.cut,
        "stderr_cut": stderr.cut,
        "seconds": seconds,
    }


class _Run:
    def __init__(
        self,
        commands: Commands,
        argv: "list[str]",
        *,
        timeout: float,
        stdin: bytes,
        head: int,
        tail: int,
    ) -> None:
        self._commands, self._input = commands, memoryview(stdin)
        self._out, self._err = BoundedOutput(head, tail), BoundedOutput(head, tail)
        self._status = b""  # bubblewrap's report, JSON lines
        self._init = 0  # process id of the init of the command's namespace; 0: not known
        self._reason = ""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._reaped_before = before.ru_utime + before.ru_stime
        self._started = time.monotonic()
        self._deadline = self._started + timeout
        self._spawn(argv)

    def _spawn(self, argv: "list[str]") -> None:
        commands = self._commands
        filter_read, filter_write = os.pipe()
        self._status_fd, status_write = os.pipe()
        os.write(filter_write, commands.program)  # fits the pipe
        os.close(filter_write)
        given = (filter_read, status_write) if commands.nested else ()
        prefix = _seal(commands, *given) if given else []
        try:
            for word in argv:
                os.fsencode(word)  # half a surrogate pair: told here, as ValueError
            self._process = Child(
                prefix + argv,
                environment=commands.environment,
                directory="/" if commands.nested else commands.workdir,
                kept=given,
                fed=bool(self._input),
                prepare=self._limit,
            )
        except (OSError, ValueError) as error:
            os.close(self._status_fd)
            if isinstance(error, ValueError) or getattr(error, "errno", 0) == errno.E2BIG:
                raise  # the caller's words: a NUL byte, no text, too long
            raise Failure(f"cannot start a command: {error}") from error
        finally:
            os.close(filter_read)
            os.close(status_write)

    def _limit(self) -> None:
        """In the child, before it executes anything."""
        limits = self._commands.limits
        for kind, wanted in (
            (resource.RLIMIT_NPROC, limits["processes"]),
            (resource.RLIMIT_NOFILE, 1024),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, limits["cpu_seconds"] + 5),  # should the watch miss it
            (resource.RLIMIT_FSIZE, limits["disk"]),  # stops sparse giants, which cost no space
        ):
            hard = resource.getrlimit(kind)[1]
            value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(kind, (value, value))
        space = resource.getrlimit(resource.RLIMIT_AS)[1]  # the runner's own bound is not theirs
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        # Else bubblewrap installs it, after its mounts, or there is none.
        if not self._commands.nested and self._commands.program:
            confine.install_filter(self._commands.program)

    def finish(self) -> "Result":
        """Until the command has ended or was ended, and nothing of it is left."""
        process = self._process
        try:
            self._pump()
        finally:
            self._kill()
            status = process.wait()
            self._reap()
            self._drain()
            process.close()
            os.close(self._status_fd)
        seconds = time.monotonic() - self._started
        if self._commands.nested and not self._init and not self._reason:
            text = self._err.value().decode("utf-8", "replace").strip()
            raise Failure(f"the command's namespace could not be made: {text}")
        code = status if status >= 0 else 128 - status
        if self._reason:
            code = code or 128 + signal.SIGKILL
        reason = self._reason or ("signal" if 128 < code <= 128 + 64 else "exited")
        return _result(code, reason, self._out, self._err, seconds)

    def _pump(self) -> None:
        process, commands = self._process, self._commands
        poll, sinks = select.poll(), {process.stdout: self._out, process.stderr: self._err}
        for descriptor in sinks:
            os.set_blocking(descriptor, False)
            poll.register(descriptor, select.POLLIN)
        if commands.nested:
            poll.register(self._status_fd, select.POLLIN)  # held by bubblewrap alone
        if process.stdin is not None:
            os.set_blocking(process.stdin, False)
            poll.register(process.stdin, select.POLLOUT)
        poll.register(commands.wake, select.POLLIN)
        look = self._started + _TICK / 2
        while not self._reason:
            now = time.monotonic()
            if not commands.nested:
                self._reap_orphans()
                if process.poll() is not None:
                    return
            if now >= self._deadline:
                self._reason = "timeout"
                return
            if now >= look:
                if census.memory_used(commands.limits["memory"]) > commands.limits["memory"]:
                    self._reason = "memory"
                    return
                if self._processor_time() > commands.limits["cpu_seconds"]:
                    self._reason = "cpu"
                    return
                look = now + _TICK
            wait = max(0.0, min(self._deadline, look) - now)
            if not commands.nested:  # nothing tells us of its end
                wait = min(wait, 0.01)
            for descriptor, _ in poll.poll(wait * 1000 + 0.999):
                if descriptor == self._status_fd:
                    if not self._note_status():
                        return
                elif descriptor == commands.wake:
                    if commands.interrupted():
                        self._reason = "timeout"
                elif descriptor in sinks:
                    self._take(poll, descriptor, sinks[descriptor])
                    if self._out.total + self._err.total > _FLOOD:
                        self._reason = "output"
                else:
                    self._feed(poll)

    def _reap_orphans(self) -> None:
        """Without a namespace of the command's own its orphans are ours, and count as processes."""
        try:
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None or ended.si_pid == self._process.pid:
                    return
                os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            return

    def _processor_time(self) -> float:
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = reaped.ru_utime + reaped.ru_stime - self._reaped_before
        return float(census.processor_time()) + ended

    def _note_status(self) -> bool:
        """Read on in bubblewrap's report; False where it has ended."""
        piece = os.read(self._status_fd, 4096)
        self._status += piece
        for line in self._status.splitlines():
            try:
                self._init = int(wire.parse(line)["child-pid"])
            except (ValueError, KeyError):  # not all of it is there yet
                pass
        return bool(piece)

    def _take(self, poll: select.poll, descriptor: int, sink: BoundedOutput) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if data:
            sink.feed(data)
        else:
            poll.unregister(descriptor)

    def _feed(self, poll: select.poll) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            self._input = self._input[os.write(pipe, self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = self._input[:0]
        if not self._input:
            poll.unregister(pipe)
            self._process.close_stdin()

    def _kill(self) -> None:
        if self._init:
            census.kill(self._init)
        elif self._process.poll() is None:
            # Bubblewrap has not told yet which process is the namespace's init, and may not have
            # tied it to its own life yet: but whatever runs in the box now is of this command.
            census.kill(self._process.pid)

    def _reap(self) -> None:
        """Wait until the last process is gone, not just the pipes: we are their subreaper."""
        if not self._init:
            census.sweep()
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            pass

    def _drain(self) -> None:
        for stream, sink in ((self._process.stdout, self._out), (self._process.stderr, self._err)):
            try:
                data = os.read(stream, _CHUNK)
                while data:
                    sink.feed(data)
                    data = os.read(stream, _CHUNK)
            except OSError:  # nothing more is there
                pass
        if self._commands.nested and not self._init:
            while self._note_status():
                pass


def _seal(commands: Commands, filter_fd: int, status_fd: int) -> "list[str]":
    """The bubblewrap call around one command."""
    # fmt: off
    return [
        commands.bwrap,
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL",
        "--die-with-parent", "--new-session",
        "--ro-bind", "/", "/", "--bind", commands.workdir, commands.workdir,
        "--bind", "/tmp", "/tmp", "--proc", "/proc", "--dev", "/dev",
        "--bind", "/dev/shm", "/dev/shm", "--remount-ro", "/dev",
        "--chdir", commands.workdir,
        "--seccomp", str(filter_fd), "--json-status-fd", str(status_fd), "--",
    ]
    # fmt: on
