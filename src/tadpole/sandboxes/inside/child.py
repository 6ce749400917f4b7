"""Starts one program of the box, with pipes to it.

Standard library only and Python 3.6+: this file runs inside the sandbox. Not ``subprocess``, whose
import takes longer than the rest of the runner's start; this process has one thread, so that fork
and exec are enough.
"""

import _signal as signal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python ignores, and a program inherits


class Child:
    """A started program. Descriptors: ``stdin`` (None: it reads nothing), ``stdout``, ``stderr``.

    Of what else is open it keeps ``kept``; it leads a session of its own.
    """

    def __init__(
        self,
        argv: "list[str]",
        *,
        environment: "dict[str, str]",
        directory: str,
        kept: "Sequence[int]",
        fed: bool,  # whether there is something on its standard input
        prepare: "Callable[[], None]",  # called in the child, last
    ) -> None:
        """Raises OSError where it cannot be started, ValueError for a NUL byte in ``argv``."""
        if any("\0" in word for word in argv):
            raise ValueError("embedded null byte")
        self._status: int | None = None
        pipes = [os.pipe() for _ in range(4)]  # they do not outlive an exec by themselves
        (fed_read, stdin), (self.stdout, out_write), (self.stderr, err_write), told = pipes
        self.stdin: int | None = stdin
        try:
            self.pid = os.fork()
        except OSError:
            for pair in pipes:
                os.close(pair[0])
                os.close(pair[1])
            raise
        if self.pid == 0:
            try:
                os.setsid()
                for number in _RESTORED:
                    signal.signal(number, signal.SIG_DFL)
                os.dup2(fed_read if fed else os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out_write, 1)
                os.dup2(err_write, 2)
                for descriptor in kept:
                    os.set_inheritable(descriptor, True)
                os.chdir(directory)
                prepare()
                os.execvpe(argv[0], argv, environment)
            except BaseException as error:
                words = f"{getattr(error, 'errno', None) or 0} {error}"
                os.write(told[1], words.encode("utf-8", "replace"))
            finally:
                os._exit(127)
        for descriptor in (fed_read, out_write, err_write, told[1]):
            os.close(descriptor)
        if not fed:
            self.close_stdin()
        words = os.read(told[0], 4096).decode("utf-8", "replace")
        os.close(told[0])
        if words:  # else the exec has closed it
            self.wait()
            self.close()
            code, _, text = words.partition(" ")
            raise OSError(int(code), text)

    def poll(self) -> "int | None":
        """How it ended, as subprocess tells it; None while it runs."""
        if self._status is None:
            self._wait(os.WNOHANG)
        return self._status

    def wait(self) -> int:
        """Wait for its end; how it ended."""
        while self._status is None:
            self._wait(0)
        return self._status

    def _wait(self, flags: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:
            pid, status = self.pid, 255 << 8  # somebody else has reaped it: not known
        if pid:
            ended = os.WIFSIGNALED(status)
            self._status = -os.WTERMSIG(status) if ended else os.WEXITSTATUS(status)

    def close_stdin(self) -> None:
        """No more input."""
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def close(self) -> None:
        """Give the descriptors back."""
        self.close_stdin()
        os.close(self.stdout)
        os.close(self.stderr)
