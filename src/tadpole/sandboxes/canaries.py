"""Tries break-outs from inside a box and prints what came of each; run there by the probe.

Standard library only and Python 3.6+. Arguments: a secret file of the host, a port of the
host's loopback, and the names of the host's environment variables. Without any: the process
limit alone.
"""

import ctypes
import errno
import functools
import json
import os
import signal
import socket
import struct
import sys
import time
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
            time.sleep(0.2)  # so that boxes which try it together are at their limits together
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
    """Print one JSON list of (code, name, held, detail)."""
    rows: list[tuple[str, str, bool, str]] = []
    if sys.argv[1:]:
        rows = _walls(sys.argv[1], int(sys.argv[2]), set(sys.argv[3:]))
    forks = _forks()
    rows.append(("P5", "process limit", forks <= 32, f"{forks} forks"))
    print(json.dumps(rows))


def _walls(secret: str, port: int, names: "set[str]") -> "list[tuple[str, str, bool, str]]":
    rows: list[tuple[str, str, bool, str]] = []

    def refused(code: str, name: str, call: "Callable[[], Any]", by: str = "") -> None:
        result = _refusal(call)
        held = result is not None and by in ("", result)
        rows.append((code, name, held, result or "went through"))

    refused("P1", "secret file", lambda: os.open(secret, os.O_RDONLY))
    leaked = (set(os.environ) & names) - _ALLOWED
    rows.append(("P1", "environment", not leaked, ", ".join(sorted(leaked)) or "only its own"))
    server = ("127.0.0.1", port)
    refused("P2", "host loopback", lambda: socket.create_connection(server, timeout=5))
    result = _refusal(_loopback)
    rows.append(("P2", "own loopback", result is None, result or "works"))
    for name, family, kind in (("AF_VSOCK", 40, 1), ("AF_PACKET", 17, 3), ("AF_ALG", 38, 5)):
        refused("P3", name, functools.partial(socket.socket, family, kind))
    refused("P4", "user namespace", _raw("unshare", 0x10000000))
    refused("P4", "mount", _raw("mount", b"none", b"/tmp", b"tmpfs", 0, None))
    refused("P4", "ptrace", _raw("ptrace", 0, 0, 0, 0))
    refused("P4", "io_uring", _raw("syscall", 425, 8, None))
    refused("P4", "limits of the init", _raw("prlimit", 1, 7, struct.pack("QQ", 9, 9), None))
    refused("P4", "write /usr", lambda: os.open("/usr/canary", os.O_CREAT | os.O_WRONLY))
    refused("P6", "disk limit", _fill, "ENOSPC")
    _clear("/repo", "fill")
    refused("P6", "inode limit", _many, "ENOSPC")
    _clear("/tmp", "many")
    rows.append(("P7", "memory group", True, _memory_group()))
    with open("/proc/self/status") as handle:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in handle if ":\t" in line)
    wanted = (("CapEff", "0" * 16), ("CapPrm", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2"))
    for name, value in wanted:
        rows.append(("P9", name, status.get(name) == value, status.get(name, "unknown")))
    return rows


def _memory_group() -> str:
    """The memory bound that the kernel keeps for this box alone; "none" where it has none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            with open("/sys/fs/cgroup/" + name) as handle:
                limit = handle.read().strip()
        except OSError:
            continue
        if limit.isdigit() and int(limit) < 1 << 60:
            return limit + " bytes"
    return "none"


if __name__ == "__main__":
    main()
