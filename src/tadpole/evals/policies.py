"""Which fingerprint was which policy: one row per policy that a run evaluates."""

from enum import StrEnum
from typing import Literal

from tadpole.rundir import RunDir
from tadpole.trace import Record

TABLE = "policies"


class PolicyRole(StrEnum):
    """What a policy is to a run."""

    RAW = "raw"  # as it came
    BEFORE = "before"  # where training starts: warmed up, where that is on
    AFTER = "after"  # trained


class PolicyRow(Record):
    """One policy. A later row of one role replaces an earlier one."""

    format: Literal[1] = 1
    role: PolicyRole
    fingerprint: str
    update: int = 0  # optimizer updates of the climb
    warmed_up: bool = False
    path: str = ""  # checkpoint, relative to the run directory


def policies(rundir: RunDir) -> dict[PolicyRole, PolicyRow]:
    """The policies of a run by role, in the order of roles."""
    rows = {row.role: row for row in rundir.rows(TABLE, PolicyRow)}
    return {role: rows[role] for role in PolicyRole if role in rows}


def note_policy(rundir: RunDir, row: PolicyRow) -> None:
    """Record a policy unless the run has it already."""
    if policies(rundir).get(row.role) != row:
        rundir.append(TABLE, row)
