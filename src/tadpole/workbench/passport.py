"""The passport of a proposal: all that is known of it, and who decided what, signed.

Guards against: a patch, evidence, policy or decision that is not what was reviewed. Does not
guard against: whoever has the key (see :mod:`tadpole.workbench.key`).
"""

import hashlib
from enum import StrEnum
from typing import Literal

from tadpole.errors import UsageError
from tadpole.trace import Record, Trace
from tadpole.workbench.gate import GateReport
from tadpole.workbench.key import SigningKey
from tadpole.workbench.policy import GateRules
from tadpole.workbench.proxy import Reached

FORMAT: Literal[2] = 2


class Ruling(StrEnum):
    """What a person decided."""

    APPROVED = "approved"
    REJECTED = "rejected"
    ASK_AGAIN = "ask_again"


class Decision(Record):
    """One decision of one person."""

    ruling: Ruling
    reviewer: str
    at: str  # UTC, ISO 8601
    reason: str = ""  # of a rejection, or the comment for the next attempt


class BaseFacts(Record):
    """What the change is made on."""

    commit: str
    digest: str  # of all files and links
    dirty: bool  # with what was not committed


class SandboxFacts(Record):
    """The policy in force while the model worked; the gate's boxes have no network at all."""

    engine: str  # session, flat or container: what sandbox.engine takes
    network: tuple[str, ...] = ()  # hosts that were allowed; none: no network
    reached: tuple[Reached, ...] = ()  # what was asked of the network, refused or not
    mounts: tuple[str, ...] = ()  # paths inside, all read-only
    call_seconds: float
    memory: int  # bytes
    processes: int
    disk: int  # bytes


class CommandRun(Record):
    """One command that the model ran in its box."""

    command: str
    error: bool
    seconds: float


class Passport(Record):
    """One per proposal. ``signature`` is over everything else."""

    format: Literal[2] = FORMAT
    proposal: str
    made_at: str  # UTC, ISO 8601
    statement: str
    base: BaseFacts
    change_sha256: str
    patch_sha256: str
    trace_sha256: str
    trace: str  # path in the job's directory
    sandbox: SandboxFacts
    model: str
    harness: str
    commands: tuple[CommandRun, ...]
    rules: GateRules
    gate: GateReport
    decision: Decision | None = None
    signature: str = ""

    def body(self) -> bytes:
        """What is signed."""
        return self.model_copy(update={"signature": ""}).model_dump_json().encode()

    def signed(self, key: SigningKey) -> "Passport":
        """The same with its signature."""
        return self.model_copy(update={"signature": key.sign(self.body())})

    def check(self, key: SigningKey) -> None:
        """Raises UsageError where the signature does not hold."""
        if not key.verifies(self.body(), self.signature):
            raise UsageError(
                f"the passport of {self.proposal} does not verify: it was changed, or signed on "
                "another machine; make the proposal again with tadpole solve"
            )


def sha256(data: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def commands_of(trace: Trace) -> tuple[CommandRun, ...]:
    """The commands that an episode ran, in order, each of them whole."""
    found = []
    for turn in trace.turns:
        for call, seen in zip(turn.calls, turn.observations, strict=False):
            if call.name == "Bash":
                command = str(call.arguments.get("command", ""))
                found.append(CommandRun(command=command, error=seen.error, seconds=seen.seconds))
    return tuple(found)
