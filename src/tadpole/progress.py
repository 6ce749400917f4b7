"""Progress on stderr: what is being done, how far it is, and how long it will yet take.

On a terminal these are bars; elsewhere plain lines, at most one every few seconds and one at
least every half minute, so that a log shows life. stdout stays free for results.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn
from rich.progress import Progress as RichProgress
from rich.progress import Task as RichTask
from rich.text import Text

from tadpole.visible import visible

QUIET_SECONDS = 5.0  # plain lines are no closer than this
BEAT_SECONDS = 30.0  # ... and no further apart


class Bar:
    """One running piece of work. Safe to use from several threads."""

    def __init__(
        self, what: str, total: float | None, done: float, show: Callable[["Bar"], None]
    ) -> None:
        self.what = what
        self.total = total  # None: not known
        self.done = done
        self.note = ""
        self._show = show
        self._start = time.monotonic()
        self._done_at_start = done  # what an earlier run did says nothing of the speed

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def remaining(self) -> float | None:
        """Seconds yet to come at the mean speed so far; None where that is not known."""
        done = self.done - self._done_at_start
        if self.total is None or done <= 0:
            return None
        return max(self.total - self.done, 0.0) * self.elapsed / done

    def advance(self, amount: float = 1, note: str | None = None) -> None:
        """Some more is done; ``note`` says what it is busy with."""
        self.update(done=self.done + amount, note=note)

    def update(
        self, *, done: float | None = None, total: float | None = None, note: str | None = None
    ) -> None:
        """Set where it stands; what is None stays."""
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        self.note = self.note if note is None else " ".join(note.split())
        self._show(self)

    def times(self) -> str:
        """Elapsed time and the estimate of what remains, for a person."""
        remaining = self.remaining
        if remaining is None or self.done == self.total:
            return clock(self.elapsed)
        return f"{clock(self.elapsed)}, {clock(remaining)} left"

    def __str__(self) -> str:
        count = f"{self.done:g}" if self.total is None else f"{self.done:g}/{self.total:g}"
        return f"{self.what}: {count} ({self.times()}) {self.note}".rstrip()


class Progress:
    """Shows the bars of one process. ``with progress.task("make tasks", total=40) as bar:``."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._console = Console(file=self._stream, highlight=False, soft_wrap=True)
        self._rich: RichProgress | None = None
        self._running = 0
        self._lock = threading.RLock()

    @classmethod
    def silent(cls) -> "Progress":
        """Shows nothing: for tests and for use as a library."""
        return cls(quiet=True)

    def say(self, line: str) -> None:
        """One line of activity, above the bars."""
        if not self._quiet:
            with self._lock:
                self._console.print(Text(visible(line, lines=True)))

    @contextmanager
    def task(self, what: str, total: float | None = None, done: float = 0) -> Iterator[Bar]:
        """Show a piece of work while the block runs; ``done`` is what was there before.

        Tasks may be nested or run side by side.
        """
        if self._quiet:
            yield Bar(what, total, done, lambda bar: None)
        elif self._console.is_terminal:
            with self._live(what, total, done) as bar:
                yield bar
        else:
            with self._plain(what, total, done) as bar:
                yield bar

    @contextmanager
    def _live(self, what: str, total: float | None, done: float) -> Iterator[Bar]:
        with self._lock:
            if self._rich is None:
                self._rich = RichProgress(*_COLUMNS, console=self._console)
                self._rich.start()
            rich = self._rich
            self._running += 1
        row = rich.add_task("", total=total)

        def show(bar: Bar) -> None:
            rich.update(row, completed=bar.done, total=bar.total)

        bar = Bar(what, total, done, show)
        rich.update(row, completed=done, bar=bar)
        try:
            yield bar
        finally:
            rich.remove_task(row)
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    rich.stop()
                    self._rich = None
            self.say(str(bar))

    @contextmanager
    def _plain(self, what: str, total: float | None, done: float) -> Iterator[Bar]:
        over = threading.Event()
        last = [time.monotonic()]

        def show(bar: Bar, gap: float = QUIET_SECONDS) -> None:
            with self._lock:
                if time.monotonic() - last[0] < gap:
                    return
                last[0] = time.monotonic()
                self.say(str(bar))

        bar = Bar(what, total, done, show)

        def beat() -> None:
            while not over.wait(BEAT_SECONDS / 3):
                show(bar, BEAT_SECONDS)

        self.say(f"{what}..." if total is None else f"{what}: {total:g} to do, {done:g} done")
        watch = threading.Thread(target=beat, name="progress", daemon=True)
        watch.start()
        try:
            yield bar
        finally:
            over.set()
            watch.join()
            self.say(str(bar))


class _Field(ProgressColumn):
    """A column that asks the bar, so that times move even while nothing advances."""

    def __init__(self, read: Callable[[Bar], str], style: str = "") -> None:
        super().__init__()
        self._read = read
        self._style = style

    def render(self, task: RichTask) -> Text:
        bar = task.fields.get("bar")
        return Text(visible(self._read(bar)) if isinstance(bar, Bar) else "", style=self._style)


_COLUMNS = (
    _Field(lambda bar: bar.what),
    BarColumn(bar_width=24),
    MofNCompleteColumn(),
    _Field(lambda bar: bar.times(), "cyan"),
    _Field(lambda bar: bar.note[:48], "dim"),
)


def clock(seconds: float) -> str:
    """Seconds for a person: ``0:07``, ``12:30``, ``1:02:30``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
