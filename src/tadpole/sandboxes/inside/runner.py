"""The process that serves one sandbox from inside: tools, commands, files, delta.

Standard library only and Python 3.6+: this file runs inside the sandbox, as
``python3 -I -S main.py`` with the wire to the controller as standard input and output and as
the init (process 1) of the box: nothing in the box can kill it, and all that is in the box ends
with it, when the controller closes the wire or dies.
"""

import _signal as signal
import errno
import os
import resource
import time

import command
import confine
import delta
import files
import mounts
import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _Header = dict[str, Any]
    _Message = tuple[_Header, list[bytes]]


class Gone(BaseException):
    """The controller closed the socket. No tool may catch this."""


class ToolTimeout(BaseException):
    """A tool other than Bash took too long. No tool may catch this."""


class Runner:
    """One sandbox's state."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers  # descriptors
        self._wake = requests  # descriptor that is readable when a request was cancelled
        self._commands: Any = None
        self._tree: Any = None
        self._current = 0  # id of the request that is being served
        self._tool_seconds, self._head, self._tail = 60.0, 15_000, 15_000
        self._timed = False  # whether an alarm is ours, and not a command's signal

    def serve(self) -> None:
        """Answer requests until the controller is gone."""
        while True:
            header, blobs = self._receive()
            if header["op"] == "cancel":  # came after its request had ended
                continue
            self._current = header["id"]
            if self._tree is not None:
                self._tree.reopen()
            try:
                answer, out = getattr(self, "_" + header["op"])(header, blobs)
            except (OSError, ValueError, MemoryError, command.Failure) as error:
                answer = {
                    "failure": _words(error),
                    "errno": _number(error),
                    "kind": type(error).__name__,
                }
                out = []
            self._send(dict(answer, id=self._current), out)

    def _setup(self, header: "_Header", blobs: "list[bytes]") -> "_Message":
        with open("/proc/self/oom_score_adj", "w") as handle:  # first to go when memory is short
            handle.write("1000")
        limits = header["limits"]
        self._tree, notes = self._prepare(header)
        confine.give_up_privileges()
        self._commands = command.Commands(
            workdir=header["workdir"],
            bwrap=header["bwrap"],
            program=blobs[0],
            environment=header["environment"],
            limits=limits,
            nested=header["nested"],
            wake=self._wake,
            interrupted=self._interrupted,
        )
        if self._commands.nested is None:  # the first box on this machine finds out
            notes += self._commands.try_nesting()
        self._tool_seconds = limits["call_seconds"]
        self._head, self._tail = limits["output_head"], limits["output_tail"]
        # A tool that reads a giant file gets a MemoryError, and the host keeps its memory.
        space = max(limits["memory"], 1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (space, resource.getrlimit(resource.RLIMIT_AS)[1]))
        os.environ.clear()
        os.environ.update(header["environment"])
        os.chdir(header["workdir"])
        os.umask(0o022)
        nested, overlay = self._commands.nested, self._tree.upper is not None
        return {
            "nested": nested,
            "overlay": overlay,
            "inodes": self._tree.bounded(limits["inodes"]),
            "notes": notes,
        }, []

    def _prepare(self, header: "_Header") -> "tuple[mounts.Tree, list[str]]":
        limits = header["limits"]
        made: tuple[mounts.Tree, list[str]] = mounts.prepare(
            header["workdir"], limits["disk"], limits["inodes"]
        )
        return made

    def _tool(self, header: "_Header", blobs: "list[bytes]") -> "_Message":
        started = time.monotonic()
        toolbox = __import__("toolbox")  # not before: many a box never runs a tool
        workdir = self._tree.workdir
        self._timed = True
        signal.setitimer(signal.ITIMER_REAL, self._tool_seconds)
        try:
            os.chdir(workdir)
            text, error = toolbox.call(header["name"], header["arguments"], workdir, self._run_bash)
        except command.Failure:
            raise
        except ToolTimeout:
            text = f"TimeoutError: {header['name']} took longer than {self._tool_seconds:g} s"
            error = True
        except Exception as caught:
            text, error = f"{type(caught).__name__}: {caught}", True
        finally:
            self._timed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return {"text": text, "error": bool(error), "seconds": time.monotonic() - started}, []

    def _run_bash(self, script: str, timeout: float) -> "command.Result":
        self._timed = False
        left = signal.setitimer(signal.ITIMER_REAL, 0)[0]
        self._send({"id": self._current, "busy": timeout}, [])
        try:
            if "\0" in script:
                raise ValueError("a command cannot contain NUL bytes")
            return self._command(["/bin/bash", "-lc", script], timeout, b"")
        finally:
            self._timed = True
            signal.setitimer(signal.ITIMER_REAL, max(left, 1.0))

    def _command(self, argv: "list[str]", timeout: float, stdin: bytes) -> "command.Result":
        return self._commands.run(
            argv, timeout=timeout, stdin=stdin, head=self._head, tail=self._tail
        )

    def _exec(self, header: "_Header", blobs: "list[bytes]") -> "_Message":
        result = self._command(header["argv"], header["timeout"], blobs[0])
        return result, [result.pop("stdout"), result.pop("stderr")]

    def _read(self, header: "_Header", blobs: "list[bytes]") -> "_Message":
        path = os.path.join(self._tree.workdir, header["path"])
        return {}, [files.read_file(path, header["largest"])]

    def _write(self, header: "_Header", blobs: "list[bytes]") -> "_Message":
        pairs = list(zip(header["changes"], blobs))  # noqa: B905 - Python 3.10
        # Deletions first: a file may take the place of a directory, and the other way round.
        for change, content in sorted(pairs, key=lambda pair: not pair[0]["deleted"]):
            files.write_file(
                self._tree.workdir,
                change["path"],
                None if change["deleted"] else content,
                executable=change["executable"],
            )
        return {}, []

    def _delta(self, header: "_Header", blobs: "list[bytes]") -> "_Message":
        changed = delta.Delta(self._tree, header["max_files"], header["max_bytes"])
        found = changed.collect()
        listed = [
            {"path": path, "deleted": content is None, "executable": executable}
            for path, content, executable in found
        ]
        return {"files": listed, "left_out": changed.left_out}, [item[1] or b"" for item in found]

    def _interrupted(self) -> bool:
        header, _ = self._receive()
        return bool(header["op"] == "cancel" and header["id"] == self._current)

    def _receive(self) -> "_Message":
        size = wire.header_size(self._exactly(wire.LENGTH.size))
        header = wire.parse(self._exactly(size))
        return header, [self._exactly(size) for size in wire.blob_sizes(header)]

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = os.read(self._requests, min(size, 1 << 20))
            if not piece:
                raise Gone()
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _send(self, header: "_Header", blobs: "list[bytes]") -> None:
        view = memoryview(wire.pack(header, blobs))
        while view:
            view = view[os.write(self._answers, view) :]

    def too_long(self, _number: int, _frame: object) -> None:
        """Handler of SIGALRM: ends a tool. Commands may send it too, and then it is nothing."""
        if self._timed:
            raise ToolTimeout()


def _number(error: Exception) -> "int | None":
    number = errno.ENOMEM if isinstance(error, MemoryError) else None
    return getattr(error, "errno", number)


def _words(error: Exception) -> str:
    """Without the number, which travels beside it."""
    if isinstance(error, MemoryError):
        return "more memory than the box's own process may take"
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


def main() -> None:
    """Keep the wire away from everything else, then serve."""
    runner = Runner(os.dup(0), os.dup(1))  # dup'ed descriptors are not inherited by commands
    # As the init of its namespace it can be sent nothing that it does not handle. Handlers, and
    # not SIG_IGN, which commands would inherit.
    signal.signal(signal.SIGALRM, runner.too_long)
    signal.signal(signal.SIGINT, lambda *_: None)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    for name in os.listdir("/proc/self/fd"):  # whatever the box was made with
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:  # that of the listing
                pass
    try:
        runner.serve()
    except (Gone, ConnectionError):
        pass
