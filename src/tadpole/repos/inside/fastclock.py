"""Clocks that run faster than they should, so that a test which allows little more time than
something takes shows itself: on a busy machine it would fail some day, whatever the library does.

Clocks of which only differences count run at ``pace``. The time of day is ahead by the same, but
afresh in every test, and not where somebody set it: dates stay those of the machine. Sleeping and
waiting last as long as ever.

Finds tests that ask ``time`` of Python, and with them those that give up waiting by it. Does not
find those that allow ``pace`` times what something takes, ask the system otherwise, or ask in
another process.
"""

import functools
import time
from collections.abc import Callable
from time import monotonic  # itself, whatever stands for it later
from typing import Any

_SET = 1.0  # seconds by which a time of day that nobody set may differ from what went by


class Interval:
    """Stands for a clock of which only differences count."""

    # Not a function: kept by a class, it would become a method.
    def __init__(self, clock: Callable[[], Any], pace: int) -> None:
        functools.update_wrapper(self, clock)
        self._clock, self._pace, self._base = clock, pace, clock()

    def __call__(self) -> Any:
        """As ``time.monotonic`` and its like; whole numbers stay whole."""
        return self._base + (self._clock() - self._base) * self._pace


class TimeOfDay:
    """Stands for ``time.time`` (``second`` 1.0) or ``time.time_ns`` (``second`` 10**9)."""

    def __init__(self, clock: Callable[[], Any], pace: int, second: float) -> None:
        functools.update_wrapper(self, clock)
        self._clock, self._pace, self._second = clock, pace, second
        self.begin()

    def begin(self) -> None:
        """From here on it runs ahead."""
        self._base, self._begun = self._clock(), monotonic()

    def __call__(self) -> Any:
        """As ``time.time``; whole numbers stay whole."""
        now, passed = self._clock(), monotonic() - self._begun
        if abs((now - self._base) / self._second - passed) > _SET:
            return now
        return now + type(now)(passed * (self._pace - 1) * self._second)


def hurry(pace: int) -> Callable[[], None]:
    """Let the clocks of this process run at ``pace``. What comes back is to be called when a test
    begins.
    """
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        for one in (name, f"{name}_ns"):
            setattr(time, one, Interval(getattr(time, one), pace))
    dates = TimeOfDay(time.time, pace, 1.0), TimeOfDay(time.time_ns, pace, 10**9)
    time.time, time.time_ns = dates

    def begin() -> None:
        for date in dates:
            date.begin()

    return begin
