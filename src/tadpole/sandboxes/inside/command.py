"""Runs one command of the box to its end: bounded, watched, and nothing left behind.

Standard library only and Python 3.6+: this file runs inside the sandbox.

Each command gets a bubblewrap of its own with a new user and process namespace, no
capabilities, the system-call filter and resource limits. Killing the init of that namespace
ends everything in it, whatever it did with sessions, signals or double forks. Where the kernel
refuses nested namespaces (``nested`` False) the command runs in the box's own process
namespace under the same limits, and everything but the runner is killed after it.
"""

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import time

import confine
from bounded import BoundedOutput

_CHUNK = 1 << 16
_TICK = 0.1  # seconds between two looks at the memory
_FLOOD = 64 << 20  # bytes of output after which a command is killed
_PAGE = resource.getpagesize()


class Failure(Exception):
    """The command could not be run at all: the box's fault, not the command's."""


class Commands:
    """What all commands of one box have in common."""

    def __init__(
        self, workdir, bwrap, program_filter, environment, limits, nested, interrupted, wake
    ):
        self.workdir, self.bwrap, self.filter = workdir, bwrap, program_filter
        self.environment, self.limits, self.nested = environment, limits, nested
        # ``wake`` becomes readable when ``interrupted()`` is worth asking: True means stop.
        self.interrupted, self.wake = interrupted, wake

    def try_nesting(self):
        """Find out whether namespaces inside namespaces work here; returns notes."""
        self.nested = True
        try:
            _Run(self, ["/bin/true"], 20.0, b"", 1000, 1000).finish()
            return []
        except Failure as error:
            self.nested = False
            return ["commands share the box's process namespace (%s)" % error]

    def run(self, argv, timeout, stdin=b"", head=15000, tail=15000):
        """A dict: code, reason, stdout, stderr, stdout_cut, stderr_cut, seconds."""
        path = self.environment.get("PATH", os.defpath)
        if shutil.which(argv[0], path=path) is None and "/" not in argv[0]:
            text = ("%s: command not found\n" % argv[0]).encode("utf-8", "surrogateescape")
            return _result(127, "exited", b"", text, 0, 0, 0.0)
        return _Run(self, argv, timeout, stdin, head, tail).finish()


def _result(code, reason, stdout, stderr, stdout_cut, stderr_cut, seconds):
    return {
        "code": code,
        "reason": reason,
        "stdout": stdout,
        "stderr": stderr,
        "stdout_cut": stdout_cut,
        "stderr_cut": stderr_cut,
        "seconds": seconds,
    }


class _Run:
    def __init__(self, commands, argv, timeout, stdin, head, tail):
        self._commands, self._input = commands, memoryview(stdin)
        self._out, self._err = BoundedOutput(head, tail), BoundedOutput(head, tail)
        self._status = b""  # bubblewrap's report, JSON lines
        self._init = None  # process id of the command's namespace init
        self._reason = None
        self._started = time.monotonic()
        self._deadline = self._started + timeout
        self._spawn(argv)

    def _spawn(self, argv):
        commands = self._commands
        filter_read, filter_write = os.pipe()
        status_read, status_write = os.pipe()
        os.write(filter_write, commands.filter)  # 1 KiB: fits the pipe
        os.close(filter_write)
        os.set_inheritable(filter_read, True)
        os.set_inheritable(status_write, True)
        self._status_fd = status_read
        command, prepare = list(argv), lambda: _limit(commands.limits)
        if commands.nested:
            command = _sealed(commands, filter_read, status_write) + command
        else:
            prepare = lambda: (_limit(commands.limits), confine.install_filter(commands.filter))  # noqa: E731
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if self._input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=commands.environment,
                cwd="/" if commands.nested else commands.workdir,
                pass_fds=(filter_read, status_write) if commands.nested else (),
                start_new_session=True,
                preexec_fn=prepare,
            )
        except (OSError, ValueError) as error:
            os.close(status_read)
            raise Failure("cannot start a command: %s" % error)
        except subprocess.SubprocessError as error:
            os.close(status_read)
            raise Failure("cannot limit a command: %s" % error)
        finally:
            os.close(filter_read)
            os.close(status_write)

    def finish(self):
        process = self._process
        try:
            self._pump()
        finally:
            self._kill()
            status = process.wait()
            self._reap()
            self._drain()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:
                        pass
            os.close(self._status_fd)
        seconds = time.monotonic() - self._started
        code = status if status >= 0 else 128 - status
        reason = self._reason
        if reason is None:
            if self._init is None and self._commands.nested:
                text = self._err.value().decode("utf-8", "replace").strip()
                raise Failure("the command's namespace could not be made: %s" % text)
            reason = "signal" if 128 < code <= 128 + 64 else "exited"
        elif code == 0:
            code = 128 + signal.SIGKILL
        out, err = self._out, self._err
        return _result(code, reason, out.value(), err.value(), out.cut, err.cut, seconds)

    def _pump(self):
        """Until the command has ended or must end. Only bubblewrap holds the status pipe."""
        process, commands = self._process, self._commands
        poll, sinks = select.poll(), {}
        for stream, sink in ((process.stdout, self._out), (process.stderr, self._err)):
            os.set_blocking(stream.fileno(), False)
            sinks[stream.fileno()] = sink
            poll.register(stream.fileno(), select.POLLIN)
        if commands.nested:
            poll.register(self._status_fd, select.POLLIN)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            poll.register(process.stdin.fileno(), select.POLLOUT)
        poll.register(commands.wake, select.POLLIN)
        look = time.monotonic() + _TICK / 2
        while True:
            now = time.monotonic()
            if not commands.nested and process.poll() is not None:
                return
            if now >= self._deadline:
                self._reason = "timeout"
                return
            if now >= look:
                if _memory_used(commands.limits["memory"]) > commands.limits["memory"]:
                    self._reason = "memory"
                    return
                look = now + _TICK
            wait = max(0.0, min(self._deadline, look) - now)
            if not commands.nested:  # nothing tells us of its end
                wait = min(wait, 0.01)
            for descriptor, _ in poll.poll(wait * 1000 + 0.999):
                if descriptor == self._status_fd:
                    piece = os.read(descriptor, 4096)
                    self._status += piece
                    self._note_init()
                    if not piece:
                        return
                elif descriptor == commands.wake:
                    if commands.interrupted():
                        self._reason = "timeout"
                        return
                elif descriptor in sinks:
                    self._take(poll, descriptor, sinks[descriptor])
                    if self._out.total + self._err.total > _FLOOD:
                        self._reason = "output"
                        return
                else:
                    self._feed(poll)

    def _note_init(self):
        for line in self._status.splitlines():
            try:
                self._init = json.loads(line.decode())["child-pid"]
            except (ValueError, KeyError):
                continue

    def _take(self, poll, descriptor, sink):
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if data:
            sink.feed(data)
        else:
            poll.unregister(descriptor)

    def _feed(self, poll):
        pipe = self._process.stdin
        try:
            self._input = self._input[os.write(pipe.fileno(), self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = self._input[:0]
        if not self._input:
            poll.unregister(pipe.fileno())
            pipe.close()

    def _kill(self):
        if self._init is None and self._process.poll() is None:
            # Killed before it told: the namespace dies with its monitor.
            _signal(self._process.pid)
        elif self._init is not None:
            _signal(self._init)

    def _reap(self):
        """Wait until the last process of the namespace is gone, not just the pipes."""
        if not self._commands.nested:
            _sweep()
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _drain(self):
        for stream, sink in ((self._process.stdout, self._out), (self._process.stderr, self._err)):
            while True:
                try:
                    data = os.read(stream.fileno(), _CHUNK)
                except (BlockingIOError, OSError):
                    break
                if not data:
                    break
                sink.feed(data)
        if self._init is None:
            while True:
                piece = os.read(self._status_fd, 4096)
                if not piece:
                    break
                self._status += piece
            self._note_init()


def _sealed(commands, filter_fd, status_fd):
    """The bubblewrap call around one command."""
    # fmt: off
    return [
        commands.bwrap,
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL",
        "--die-with-parent", "--new-session",
        "--ro-bind", "/", "/", "--bind", commands.workdir, commands.workdir,
        "--bind", "/tmp", "/tmp", "--proc", "/proc", "--dev", "/dev",
        "--size", str(commands.limits["shared"]), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
        "--chdir", commands.workdir,
        "--seccomp", str(filter_fd), "--json-status-fd", str(status_fd), "--",
    ]
    # fmt: on


def _limit(limits):
    """In the child, before it executes anything."""
    for kind, value in (
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["disk"]),  # stops sparse giants, which cost no space
    ):
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def _signal(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _sweep():
    """Kill everything in this process namespace except its init and us."""
    while True:
        others = [pid for pid in _processes() if pid not in (1, os.getpid())]
        if not others:
            return
        for pid in others:
            _signal(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.002)


def _processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _memory_used(limit):
    """Bytes in use by the command: resident pages, and shared ones split where it matters."""
    ours = [pid for pid in _processes() if pid not in (1, os.getpid())]
    total = sum(_resident(pid) for pid in ours)
    if total > limit:  # forked workers share pages: count each page once before killing
        total = sum(_proportional(pid) for pid in ours)
    return total


def _resident(pid):
    try:
        with open("/proc/%d/statm" % pid) as handle:
            return int(handle.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _proportional(pid):
    try:
        with open("/proc/%d/smaps_rollup" % pid) as handle:
            for line in handle:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _resident(pid)
