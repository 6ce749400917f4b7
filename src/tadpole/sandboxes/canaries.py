"""Tries break-outs from inside a box and prints what came of each; run there by the probe.

Standard library only and Python 3.6+. Arguments: a secret file of the host, a port of the
host's loopback, and the names of the host's environment variables.
"""

import ctypes
import errno
import functools
import json
import os
import signal
import socket
import sys
from typing import Any, Callable  # noqa: UP035 - Python 3.6

_libc = ctypes.CDLL(None, use_errno=True)
_ALLOWED = {"PATH", "HOME", "USER", "LANG", "TERM", "PYTHONNOUSERSITE", "PWD", "SHLVL", "_"}


def _refusal(call: "Callable[[], Any]") -> "str | None":
    """The name of the error with which ``call`` was refused; None where it went through."""
    try:
        call()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return None


def _raw(name: str, *arguments: Any) -> "Callable[[], None]":
    def call() -> None:
        if getattr(_libc, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), name)

    return call


def _forks() -> int:
    """How many children could be started before the limit; they end with this process."""
    count = 0
    while count < 2000:
        try:
            child = os.fork()
        except OSError:
            return count
        if child == 0:
            signal.pause()
        count += 1
    return count


def _fill() -> None:
    for number in range(64):
        with open(f"/repo/fill{number}", "wb") as handle:
            handle.write(b"x" * (1 << 20))


def _clear(directory: str, prefix: str) -> None:
    for name in os.listdir(directory):
        if name.startswith(prefix):
            os.unlink(os.path.join(directory, name))


def _many() -> None:
    for number in range(5000):
        os.close(os.open(f"/tmp/many{number}", os.O_CREAT | os.O_WRONLY))


def _loopback() -> None:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    socket.create_connection(server.getsockname(), timeout=5).close()


def main() -> None:
    """Print one JSON list of (name, held, detail)."""
    secret, port, names = sys.argv[1], int(sys.argv[2]), set(sys.argv[3:])
    rows: list[tuple[str, bool, str]] = []

    def refused(name: str, call: "Callable[[], Any]") -> None:
        result = _refusal(call)
        rows.append((name, result is not None, result or "went through"))

    refused("secret file", lambda: os.open(secret, os.O_RDONLY))
    refused("host loopback", lambda: socket.create_connection(("127.0.0.1", port), timeout=5))
    result = _refusal(_loopback)
    rows.append(("own loopback", result is None, result or "works"))
    for name, family, kind in (("AF_VSOCK", 40, 1), ("AF_PACKET", 17, 3), ("AF_ALG", 38, 5)):
        refused(name, functools.partial(socket.socket, family, kind))
    refused("user namespace", _raw("unshare", 0x10000000))
    refused("mount", _raw("mount", b"none", b"/tmp", b"tmpfs", 0, None))
    refused("ptrace", _raw("ptrace", 0, 0, 0, 0))
    refused("io_uring", _raw("syscall", 425, 8, None))
    refused("write /usr", lambda: os.open("/usr/canary", os.O_CREAT | os.O_WRONLY))
    refused("disk limit", _fill)
    _clear("/repo", "fill")
    refused("inode limit", _many)
    _clear("/tmp", "many")
    leaked = (set(os.environ) & names) - _ALLOWED
    rows.append(("environment", not leaked, ", ".join(sorted(leaked)) or "only its own"))
    with open("/proc/self/status") as handle:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in handle if ":\t" in line)
    wanted = (("CapEff", "0" * 16), ("CapPrm", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2"))
    for name, value in wanted:
        rows.append((name, status.get(name) == value, status.get(name, "unknown")))
    forks = _forks()
    rows.append(("process limit", forks <= 32, f"{forks} forks"))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
