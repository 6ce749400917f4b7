"""An event loop on which time is only counted: what sleeps an hour is done at once.

For code that takes its time from the running loop. A wait for something that nothing will ever
bring raises instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")


class _Leap(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Moves the clock to the next timer instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing is scheduled and nothing runs: this would hang for ever")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose seconds take no time. It has no threads, processes or network."""

    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._leap.now


def run_virtual(main: Coroutine[Any, Any, Value]) -> Value:
    """Run ``main`` on a loop of its own; what it returns."""
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(main)
