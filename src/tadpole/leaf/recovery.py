"""A box that is made again when it dies, with everything that the policy did to it.

Only what may have changed something is replayed: Bash, and the Write and Edit calls that were
not refused. The replay must end as the first time did, else what the policy was told no longer
holds and the episode cannot go on. Nothing is replayed of what is not in the work tree: the box
has no network and no other state that outlives a call.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tadpole.errors import SandboxDied, SandboxError
from tadpole.leaf.tools import ToolName
from tadpole.protocols import ExecResult, LeftOut, Sandbox
from tadpole.task import FileChange
from tadpole.trace import Observation

MOST = 2  # recoveries of one episode

_Result = TypeVar("_Result")


class _Lost(SandboxDied):
    """The box is gone for good: another recovery would not help."""


@dataclass(frozen=True)
class _Step:
    """One thing that was done to the box, and what came of it."""

    what: str
    again: Callable[[Sandbox], Awaitable[str]]
    outcome: str


class RecoveringSandbox:
    """Implements :class:`tadpole.protocols.Sandbox` on boxes that ``start`` makes.

    A call that finds its box dead raises SandboxDied only after ``MOST`` recoveries, where no
    new box can be made, or where the replay has another outcome.
    """

    def __init__(self, start: Callable[[], Awaitable[Sandbox]], box: Sandbox):
        self._start, self._box = start, box
        self._steps: list[_Step] = []
        self.recoveries = 0

    @classmethod
    async def begin(cls, start: Callable[[], Awaitable[Sandbox]]) -> "RecoveringSandbox":
        """The first box is made here. Raises what ``start`` raises."""
        return cls(start, await start())

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """See the protocol."""

        async def run(box: Sandbox) -> Observation:
            return await box.tool(name, arguments)

        async def again(box: Sandbox) -> str:
            return outcome(name, await run(box))

        seen = await self._alive(run)
        if changes(name, seen):
            self._steps.append(_Step(name, again, outcome(name, seen)))
        return seen

    async def exec(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> ExecResult:
        """See the protocol."""

        async def run(box: Sandbox) -> ExecResult:
            return await box.exec(argv, timeout=timeout, stdin=stdin)

        async def again(box: Sandbox) -> str:
            return _ending(await run(box))

        done = await self._alive(run)
        self._steps.append(_Step(argv[0], again, _ending(done)))
        return done

    async def read(self, path: str) -> bytes:
        """See the protocol."""
        return await self._alive(lambda box: box.read(path))

    async def write(self, changes: Sequence[FileChange]) -> None:
        """See the protocol."""

        async def again(box: Sandbox) -> str:
            await box.write(changes)
            return ""

        await self._alive(again)
        self._steps.append(_Step("write", again, ""))

    async def delta(self) -> tuple[FileChange, ...]:
        """See the protocol."""
        return await self._alive(lambda box: box.delta())

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """See the protocol."""
        return self._box.left_out

    async def close(self) -> None:
        """See the protocol."""
        await self._box.close()

    async def _alive(self, do: Callable[[Sandbox], Awaitable[_Result]]) -> _Result:
        """Do it; where the box dies of it or was dead, on a new box. The call itself may be
        what kills the box, so each of its tries is one recovery."""
        death: SandboxDied | None = None
        while True:
            try:
                if death is not None:
                    await self._recover(death)
                return await do(self._box)
            except _Lost:
                raise
            except SandboxDied as error:
                if self.recoveries >= MOST:
                    raise
                self.recoveries += 1
                death = error

    async def _recover(self, death: SandboxDied) -> None:
        with contextlib.suppress(SandboxError):
            await self._box.close()
        try:
            self._box = await self._start()
        except SandboxError as error:
            raise _Lost(f"{death}; and no new sandbox could be made: {error}") from error
        for step in self._steps:
            came = await step.again(self._box)
            if came != step.outcome:
                raise _Lost(
                    f"{death}; {step.what} had another outcome when it was replayed in a new "
                    f"sandbox: {_first(came)!r}, not {_first(step.outcome)!r}"
                )


def changes(name: str, seen: Observation) -> bool:
    """Whether a call may have changed the work tree."""
    return name == ToolName.BASH or (name in (ToolName.WRITE, ToolName.EDIT) and not seen.error)


def outcome(name: str, seen: Observation) -> str:
    """What must come again: of Bash how it ended (its output may tell the time), else all."""
    return _first(seen.text) if name == ToolName.BASH else seen.text


def _ending(done: ExecResult) -> str:
    return f"{done.reason} {done.code}"


def _first(text: str) -> str:
    return text.partition("\n")[0][:200]
