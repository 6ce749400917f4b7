"""Validates one candidate, again where infrastructure broke: a task, or the reason why not."""

import time
from dataclasses import dataclass

from tadpole.errors import GraderError, SandboxDied, SandboxStartError
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.repos.snapshot import Snapshot
from tadpole.task import Task

RETRIES = 2


@dataclass(frozen=True)
class Judged:
    """What validation said: a task or a reason."""

    task: Task | None
    reason: DropReason | None
    seconds: float
    detail: str = ""  # what tells more than the reason


async def judge(
    validator: Validator, snapshot: Snapshot, candidate: Candidate, name: str
) -> Judged:
    """Validate it under ``name``. Raises SandboxError or GraderError where it keeps breaking."""
    start = time.monotonic()
    for attempt in range(RETRIES + 1):
        try:
            task = await validator.validate(snapshot, candidate, name)
            return Judged(task, None, time.monotonic() - start)
        except Dropped as drop:
            return Judged(None, drop.reason, time.monotonic() - start, drop.detail)
        except (SandboxDied, SandboxStartError, GraderError):
            if attempt == RETRIES:
                raise
    raise AssertionError("unreachable")
