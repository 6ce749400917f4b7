"""The two ways to talk with a policy: in token ids, exactly, or in messages, through a server.

The episode loop knows only what is here, so that both meet the same tools, guard and endings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tadpole.protocols import Sampling
from tadpole.trace import Observation, ToolCall


@dataclass(frozen=True)
class Said:
    """One turn of the policy, as it was read."""

    text: str  # all of it
    reasoning: str
    spoken: str  # the text without the reasoning
    calls: tuple[ToolCall, ...]
    ended: bool  # False: cut by a limit
    generated_tokens: int


class Conversation(Protocol):
    """One episode's context. Every turn is :meth:`say`, then :meth:`hear`."""

    @property
    def size(self) -> int:
        """Tokens of the context as the policy would be asked with it now."""
        ...

    @property
    def turns(self) -> int:
        """Whole turns that are in it since it began or was compacted."""
        ...

    async def say(self, sampling: Sampling, seed: int) -> Said:
        """Ask the policy. Raises ModelError."""
        ...

    def hear(self, observations: Sequence[Observation]) -> None:
        """Answer the last turn's calls. Raises ModelError where nothing can follow it."""
        ...

    def ask(self, request: str, window: int, answer: int) -> int:
        """Put ``request`` to the policy, so that request, history and ``answer`` tokens fit
        ``window``: the oldest whole turns are left out. Returns how many."""
        ...

    def restart(self, told: str) -> None:
        """Begin again from the system message and ``told``."""
        ...

    def close(self) -> None:
        """The episode is over."""
        ...


def left_out(fixed: int, turns: Sequence[int], most: int) -> int:
    """How many of the oldest ``turns`` (tokens each) go, so that ``fixed`` and the rest fit."""
    gone, total = 0, fixed + sum(turns)
    while gone < len(turns) and total > most:
        total -= turns[gone]
        gone += 1
    return gone
