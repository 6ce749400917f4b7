"""Serves the requests of one file into another and ends: for boxes that only run programs.

Standard library only and Python 3.6+: this file runs inside the sandbox, within an archive, as
``python3 -I -S ARCHIVE REQUESTS ANSWERS``. Between two of its runs nothing of a box is left but
its files, so that what a command does to this program's process ends with the command.
"""

import _signal as signal
import os
import sys

import census
import mounts
import runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Once(runner.Runner):  # type: ignore[misc]
    """A runner over a work tree that is there already, in a box that has other processes."""

    def __init__(self, requests: int, answers: int) -> None:
        super().__init__(requests, answers)
        self._wake, self._held = os.pipe()  # never readable: nobody cancels

    def _prepare(self, header: "dict[str, Any]") -> "tuple[mounts.Tree, list[str]]":
        census.share()
        lower = os.open(header["pristine"], os.O_RDONLY | os.O_DIRECTORY)
        return mounts.Tree(header["workdir"], lower, None), []


def main() -> None:
    """Serve to the end of the requests."""
    requests = os.open(sys.argv[1], os.O_RDONLY)
    answers = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    once = Once(requests, answers)
    signal.signal(signal.SIGALRM, once.too_long)
    try:
        once.serve()
    except runner.Gone:
        pass
