"""A conversation in token ids: what was sampled is kept, recorded and never tokenized again.

A turn that is left out takes its sampled tokens and its results with it, up to the next
generation prompt; what remains are the very tokens that were sampled and seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tadpole.errors import ModelError
from tadpole.leaf import reasoning
from tadpole.leaf.conversations import Said, left_out
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.record import EpisodeRecord
from tadpole.protocols import Sampling, TokenPolicy
from tadpole.trace import Observation


@dataclass(frozen=True)
class _Turn:
    sampled: tuple[int, ...]
    after: tuple[int, ...]  # its results, and the next generation prompt
    observations: tuple[Observation, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.sampled + self.after


class TokenConversation:
    """Implements :class:`tadpole.leaf.conversations.Conversation` and fills ``record``."""

    def __init__(
        self,
        policy: TokenPolicy,
        dialogue: Dialogue,
        record: EpisodeRecord,
        *,
        statement: str,
        episode: str,
    ):
        self._policy, self._dialogue, self._record = policy, dialogue, record
        self._episode = episode
        self._last: tuple[int, ...] = ()
        self._begin(statement)

    def _begin(self, told: str) -> None:
        self._told, self._turns = told, list[_Turn]()
        self._start = self._dialogue.start(told)
        self._next: list[int] = list(self._start)  # given, but not yet seen by the policy

    @property
    def size(self) -> int:
        """See the protocol."""
        return len(self._record.ids) + len(self._next)

    @property
    def turns(self) -> int:
        """See the protocol."""
        return len(self._turns)

    async def say(self, sampling: Sampling, seed: int) -> Said:
        """See the protocol; also raises ModelError where the policy breaks its own."""
        self._record.given(self._next)
        self._next = []
        sampled = await self._policy.sample(
            tuple(self._record.ids), sampling, episode=self._episode, seed=seed
        )
        if not sampled.ids or len(sampled.ids) != len(sampled.logprobs):
            counts = f"{len(sampled.ids)} tokens with {len(sampled.logprobs)} log-probabilities"
            raise ModelError(f"the policy returned {counts}")
        self._record.sampled(sampled)
        self._last = sampled.ids
        text, thought, calls = self._dialogue.read(sampled.ids)
        spoken = reasoning.split(text, opened=self._dialogue.thinks)[1].strip()
        return Said(text, thought, spoken, calls, sampled.ended, len(sampled.ids))

    def hear(self, observations: Sequence[Observation]) -> None:
        """See the protocol."""
        self._next = self._dialogue.observe(observations, self._last[-1])
        self._turns.append(_Turn(self._last, tuple(self._next), tuple(observations)))

    def ask(self, request: str, window: int, answer: int) -> int:
        """See the protocol. Opens a new segment."""
        last = self._turns[-1]
        after = self._dialogue.observe(last.observations, last.sampled[-1], request)
        most = max(1, window - (len(after) - len(last.after)) - answer)
        gone = left_out(len(self._start), [len(turn.ids) for turn in self._turns], most)
        kept = self._turns[gone:]
        self._record.close_segment()
        if kept:
            history = [token for turn in kept for token in turn.ids]
            self._next = [*self._start, *history[: len(history) - len(last.after)], *after]
        else:
            self._next = self._dialogue.start(f"{self._told}\n\n{request}")
        return gone

    def restart(self, told: str) -> None:
        """See the protocol. Opens a new segment."""
        self._record.close_segment()
        self._begin(told)

    def close(self) -> None:
        """See the protocol."""
        self._policy.release(self._episode)
