"""Which host user a box runs as: the caller, or where that is root, a user that owns nothing."""

import itertools
import os
import threading

from tadpole.errors import SandboxUnavailable

_FIRST, _SPAN = 1_900_000_000, 1 << 30  # beyond the ranges that distributions hand out
_counter = itertools.count()
_lock = threading.Lock()


def box_user() -> int | None:
    """None for an ordinary user; for root a uid of its own for each of 256 boxes.

    Raises SandboxUnavailable for root in a container without a second user id.
    """
    if os.geteuid() != 0:
        return None
    wanted = unused()
    ranges = _mapped()
    if any(first <= wanted < first + size for first, size in ranges):
        return wanted
    largest = max(first + size - 1 for first, size in ranges)
    if largest < 1:
        raise SandboxUnavailable(
            "root of a container that has no second user id: run as an ordinary user instead"
        )
    return largest


def unused() -> int:
    """A user id that owns nothing on a usual system; another one for each of 256 calls."""
    with _lock:
        return _FIRST + (os.getpid() * 256 + next(_counter) % 256) % _SPAN


def _mapped() -> list[tuple[int, int]]:
    """(first, size) of the user ids that exist in this user namespace."""
    with open("/proc/self/uid_map") as handle:
        rows = [line.split() for line in handle]
    return [(int(row[0]), int(row[2])) for row in rows]
