"""Giving freed memory back to the system.

Sequences of ever-changing lengths leave holes in the C library's heap: without this a process
that trains on a CPU grows to several times of what it uses.
"""

import ctypes
import functools
import gc
from collections.abc import Callable


def give_back() -> None:
    """Return freed pages to the system. Some milliseconds; does nothing without glibc."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def give_back_all() -> None:
    """The same, with what only reference cycles still hold: models and optimizers do."""
    gc.collect()
    give_back()


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found
