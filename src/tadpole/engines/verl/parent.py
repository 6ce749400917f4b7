"""The tie between the driver of a climb and the process that started it.

Ctrl-C reaches the driver through that process. Where it is killed outright nobody can end the
driver but the kernel, and two drivers would write over each other's checkpoints.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which started it, ends; exit if it has.

    The processes that Ray started here end with this one.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, is gone")
