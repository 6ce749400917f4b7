"""The processes of the box other than its own: counted, weighed, ended.

Standard library only and Python 3.6+: this file runs inside the sandbox, whose /proc shows all
processes of the box, those in nested namespaces included, and none of the host.
"""

import _signal as signal
import os
import resource
import time

_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")
_alone = True  # whether all processes of the box are the runner's


def share() -> None:
    """From here on only what this process has started counts: the box has others, too."""
    global _alone  # noqa: PLW0603 - one runner a process
    _alone = False


def alone() -> bool:
    """Whether what is in the box is of its runner and of commands of it, and of nobody else."""
    return _alone


def others() -> "list[int]":
    """Process ids of everything but the box's init and this process."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and not _ours(int(name))]
    return found if _alone else _descendants(found)


def _descendants(pids: "list[int]") -> "list[int]":
    """Those that this process, to which orphans are given, has among its own."""
    parents = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as handle:
                parents[pid] = int(handle.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found)


def _ours(pid: int) -> bool:
    return pid in (1, os.getpid())


def kill(pid: int) -> None:
    """End one process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def sweep() -> None:
    """End everything but the box's init and this process, however often it forks."""
    while True:
        left = others()
        if not left:
            return
        for pid in [-1] if _alone else left:  # -1: all in one step, so that no fork gets away
            kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.002)


def memory_used(limit: int) -> int:
    """Bytes in use: resident pages; where that is over ``limit``, shared ones counted once."""
    pids = others()
    total = sum(_resident(pid) for pid in pids)
    if total > limit:  # forked workers share pages
        total = sum(_proportional(pid) for pid in pids)
    return total


def processor_time() -> float:
    """Seconds of processor time of all of them, and of their children that have ended."""
    ticks = 0
    for pid in others():
        try:
            with open(f"/proc/{pid}/stat", "rb") as handle:
                # After the name, which may hold anything: utime, stime, cutime, cstime.
                ticks += sum(map(int, handle.read().rpartition(b")")[2].split()[11:15]))
        except (OSError, ValueError, IndexError):
            continue
    return ticks / _TICKS


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as handle:
            return int(handle.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as handle:
            for line in handle:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _resident(pid)
