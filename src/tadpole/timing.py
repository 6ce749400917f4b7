"""How long the stages of a run took: one row per visit to a stage."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tadpole.rundir import RunDir
from tadpole.trace import Record

TABLE = "stages"


class StageRow(Record):
    """One visit to a stage. A stage that was taken up again has several."""

    format: Literal[1] = 1
    stage: str
    seconds: float
    finished: bool  # False: it was interrupted or failed


@contextmanager
def timed(rundir: RunDir, name: str) -> Iterator[None]:
    """Record how long the block took, however it ends (but for a kill)."""
    start, finished = time.monotonic(), False
    try:
        yield
        finished = True
    finally:
        seconds = round(time.monotonic() - start, 3)
        rundir.append(TABLE, StageRow(stage=name, seconds=seconds, finished=finished))


def cpu_seconds() -> float:
    """Processor time of this process and of all that it ran and that has ended, in seconds."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
