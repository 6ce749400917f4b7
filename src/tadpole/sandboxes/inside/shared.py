"""Shared memory, which outlives the processes that use it: ended with its command.

Standard library only and Python 3.6+: this file runs inside the sandbox.
"""

import ctypes
import os

_PLACE = "/dev/shm"
_REMOVE = 0  # IPC_RMID
_libc = ctypes.CDLL(None)


def clear(nested: bool) -> None:
    """Remove what a command has left. ``nested``: it had kernel objects of its own."""
    try:
        left = os.listdir(_PLACE)
    except OSError:  # closed by the agent, who owns it
        os.chmod(_PLACE, 0o1777)
        left = os.listdir(_PLACE)
    if left:
        _remove(left)
    if not nested:
        for kind, remove in (("shm", _shm), ("msg", _msg), ("sem", _sem)):
            for number in _objects(kind):
                remove(number)


def _remove(names: "list[str]") -> None:
    shutil = __import__("shutil")  # takes long to import, and is seldom needed
    for name in names:
        path = os.path.join(_PLACE, name)
        try:
            os.unlink(path)
        except IsADirectoryError:
            try:
                shutil.rmtree(path, ignore_errors=True)
            except RecursionError:  # what stays there counts as files do
                pass


def _objects(kind: str) -> "list[int]":
    """Ids of the System V objects of a kind in this namespace."""
    try:
        with open("/proc/sysvipc/" + kind) as table:
            return [int(line.split()[1]) for line in table.readlines()[1:]]
    except OSError:  # a kernel without them
        return []


def _shm(number: int) -> None:
    _libc.shmctl(number, _REMOVE, None)


def _msg(number: int) -> None:
    _libc.msgctl(number, _REMOVE, None)


def _sem(number: int) -> None:
    _libc.semctl(number, 0, _REMOVE)
