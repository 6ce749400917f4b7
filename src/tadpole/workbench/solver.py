"""What makes an attempt: an isolated tree goes in, a change and a trace come out.

:class:`Solver` is all that a job knows of models. :mod:`tadpole.workbench.leafsolver` is the one
that runs the Leaf loop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import Field

from tadpole.leaf import toolbox
from tadpole.leaf.tools import ToolName
from tadpole.protocols import ExecResult, LeftOut, Sandbox, SandboxSpec
from tadpole.task import FileChange
from tadpole.trace import Observation, Record, Trace
from tadpole.workbench.allowlist import Allowed
from tadpole.workbench.proxy import Proxy, Reached

_RULED = "which commands run is in the repository's policy, so do without this one"


class EventKind(StrEnum):
    """What happens while a model works."""

    SAY = "say"  # what the model says beside its calls
    CALL = "call"
    RESULT = "result"
    NETWORK = "network"  # a connection that ended, or was refused
    STOP = "stop"


class Event(Record):
    """One line of activity, for a person or a script."""

    attempt: int
    kind: EventKind
    name: str = ""  # the tool
    arguments: dict[str, Any] = Field(default_factory=dict)
    text: str = ""
    error: bool = False


@dataclass(frozen=True)
class Ask:
    """One attempt that is wanted."""

    name: str
    number: int
    statement: str
    spec: SandboxSpec
    seed: int
    tell: Callable[[Event], None]
    refusal: Callable[[str], str] = lambda command: ""  # why a Bash command does not run, or ""
    network: tuple[Allowed, ...] = ()  # what the box may reach
    python: str = "python3"  # the interpreter in the box


@dataclass(frozen=True)
class Attempted:
    """What an attempt left. ``delta`` is empty where its ending makes it worthless."""

    delta: tuple[FileChange, ...]
    trace: Trace
    left_out: tuple[LeftOut, ...] = ()  # what else was changed, which no delta can hold
    engine: str = ""  # which kind of box it was
    reached: tuple[Reached, ...] = ()  # what was asked of the network


class Solver(Protocol):
    """Makes attempts, several at a time."""

    @property
    def model(self) -> str:
        """Names the weights or the served model."""
        ...

    @property
    def harness(self) -> str:
        """Names what stands around the model."""
        ...

    async def attempt(self, ask: Ask) -> Attempted:
        """Make one attempt in a box of its own, which is gone when this returns or raises.

        Raises SandboxError; what the model does wrong is in the trace.
        """
        ...


class Told:
    """A sandbox that tells of every call as it happens, and runs no command that the repository's
    policy refuses. For whoever runs a loop over one.

    Does not protect against: a refused program that runs from within an allowed one, or from a
    script that the model writes. The box is the wall.
    """

    def __init__(self, box: Sandbox, ask: Ask) -> None:
        self._box, self._ask = box, ask

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """As the box does, told before and after."""
        number, tell = self._ask.number, self._ask.tell
        tell(Event(attempt=number, kind=EventKind.CALL, name=name, arguments=dict(arguments)))
        refused = self._ask.refusal(_command(arguments)) if name == ToolName.BASH else ""
        if refused:
            text = f"PermissionError: not run: {refused[:500]}; {_RULED}"
            seen = Observation(text=text, error=True)
        else:
            seen = await self._box.tool(name, arguments)
        tell(
            Event(
                attempt=number, kind=EventKind.RESULT, name=name, text=seen.text, error=seen.error
            )
        )
        return seen

    async def exec(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> ExecResult:
        """As the box does."""
        return await self._box.exec(argv, timeout=timeout, stdin=stdin)

    async def read(self, path: str) -> bytes:
        """As the box does."""
        return await self._box.read(path)

    async def write(self, changes: Sequence[FileChange]) -> None:
        """As the box does."""
        await self._box.write(changes)

    async def delta(self) -> tuple[FileChange, ...]:
        """As the box does."""
        return await self._box.delta()

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """As the box does."""
        return self._box.left_out

    async def close(self) -> None:
        """As the box does."""
        await self._box.close()


def watched(ask: Ask) -> Proxy:
    """The proxy of an attempt, which tells of every connection."""

    def tell(seen: Reached) -> None:
        place = f"{seen.host}:{seen.port}"
        text = f"{seen.times} times, {seen.sent} bytes out, {seen.received} in"
        event = Event(attempt=ask.number, kind=EventKind.NETWORK, name=place)
        told = {"text": text if seen.allowed else "not allowed", "error": not seen.allowed}
        ask.tell(event.model_copy(update=told))

    return Proxy(ask.network, tell)


def _command(arguments: Mapping[str, Any]) -> str:
    """The command line that the box would run; empty where it would refuse the arguments."""
    try:
        return str(toolbox.coerced(ToolName.BASH, dict(arguments))["command"])
    except (ValueError, TypeError):
        return ""
