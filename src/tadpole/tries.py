"""An attempt that is made again while infrastructure breaks it."""

from collections.abc import Awaitable, Callable

from tadpole.outcome import OUTCOME_POLICY
from tadpole.rundir import RunDir
from tadpole.trace import Attempt

RETRIES = 2


async def tried(
    attempt: Callable[[], Awaitable[Attempt]],
    rundir: RunDir,
    table: str,
    retries: int = RETRIES,
) -> Attempt:
    """The first attempt of which something is known, else the last; each leaves a row."""
    for _ in range(retries):
        row = await attempt()
        rundir.append(table, row)
        if not OUTCOME_POLICY[row.outcome].retry:
            return row
    row = await attempt()
    rundir.append(table, row)
    return row
