"""Ends what a controller left behind that was killed in the middle of a start.

bubblewrap's first process in a box asks to die with its monitor only once that one has let it go
on. A controller that is killed (kill -9) in these milliseconds takes the monitor along, and the
other then waits for ever: without anything of the box around it yet, and without using anything.
No flag of bubblewrap's prevents that, so whoever starts a box next ends such leftovers.

Does not protect against: leftovers on a machine where no box is ever started again.
"""

import contextlib
import os
import signal
from pathlib import Path

from tadpole.sandboxes.layout import RUNNER

_PROC = Path("/proc")


def sweep() -> list[int]:
    """Kill the first processes of boxes that wait for a monitor that is gone; their ids."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _starting(entry) and _first_of_a_namespace(entry):
            with contextlib.suppress(OSError, ValueError):
                if not _starting(_PROC / _field(entry, "PPid")[0]):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found.append(int(entry.name))
    return found


def _starting(entry: Path) -> bool:
    """Whether it is a bubblewrap of ours: a monitor, or a first process before its program."""
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"/bwrap") and RUNNER[-1].encode() in words


def _first_of_a_namespace(entry: Path) -> bool:
    try:
        ids = _field(entry, "NSpid")
    except (OSError, ValueError):
        return False
    return len(ids) > 1 and ids[-1] == "1"


def _field(entry: Path, name: str) -> list[str]:
    """The words of a line of a process's status. Raises OSError, ValueError."""
    for line in (entry / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split()[1:]
    raise ValueError(name)
