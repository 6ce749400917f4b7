"""Gives privileges away, for good: of the runner itself, and of a command without namespaces.

Standard library only and Python 3.6+: this file runs inside the sandbox.
"""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
_SECCOMP_MODE_FILTER, _INSTRUCTION = 2, 8


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def give_up_privileges() -> None:
    """No capabilities from here on, also not by executing a file; and nobody may look in."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    # Read and Write run here: /proc/self/mem must not be writable through them.
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    # The init of a dead command's namespace becomes our child, so that we can wait for it.
    _check(_libc.prctl(_PR_SET_SUBREAPER, 1, 0, 0, 0), "subreaper")


def install_filter(program: bytes) -> None:
    """Put the system-call filter on this process and all that it starts."""
    argument = _Program(len(program) // _INSTRUCTION, program)
    _check(
        _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(argument), 0, 0), "seccomp"
    )
