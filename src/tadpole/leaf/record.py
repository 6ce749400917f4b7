"""What an episode leaves behind, kept up to date at every step so that no ending loses it."""

import time
from collections.abc import Sequence

from tadpole.outcome import StopReason
from tadpole.protocols import Sampled
from tadpole.trace import Compaction, Tokens, Trace, Turn


class EpisodeRecord:
    """Collects the tokens and turns of one episode. ``ids`` is the present context.

    An episode over messages leaves ``ids`` empty: it has turns but no tokens.
    """

    def __init__(self, *, task: str, policy: str, seed: int, system: str, statement: str):
        self._task, self._policy, self._seed = task, policy, seed
        self._system, self._statement = system, statement
        self._begun = time.monotonic()
        self.ids: list[int] = []
        self._logprobs: list[float] = []
        self._mask: list[int] = []
        self._versions: list[int] = []
        self._earlier: list[Tokens] = []
        self.turns: list[Turn] = []
        self.compactions: list[Compaction] = []

    def given(self, ids: Sequence[int]) -> None:
        """Tokens that the policy saw but did not make: prompt and tool results."""
        self._extend(ids, [0.0] * len(ids), 0, -1)

    def sampled(self, sampled: Sampled) -> None:
        """Tokens that the policy made."""
        self._extend(sampled.ids, sampled.logprobs, 1, sampled.version)

    def close_segment(self) -> None:
        """What follows is another context: the present one is kept as it is."""
        if self.ids:
            self._earlier.append(self._tokens())
        self.ids, self._logprobs, self._mask, self._versions = [], [], [], []

    def _tokens(self) -> Tokens:
        return Tokens(
            ids=tuple(self.ids),
            logprobs=tuple(self._logprobs),
            loss_mask=tuple(self._mask),
            versions=tuple(self._versions),
        )

    def _extend(self, ids: Sequence[int], logs: Sequence[float], mask: int, version: int) -> None:
        self.ids += ids
        self._logprobs += logs
        self._mask += [mask] * len(ids)
        self._versions += [version] * len(ids)

    @property
    def seconds(self) -> float:
        """Seconds since the episode began."""
        return time.monotonic() - self._begun

    def trace(self, stop: StopReason, error: str = "") -> Trace:
        """The episode as it stands."""
        return Trace(
            task=self._task,
            policy=self._policy,
            seed=self._seed,
            system=self._system,
            statement=self._statement,
            turns=tuple(self.turns),
            stop=stop,
            tokens=self._tokens(),
            earlier=tuple(self._earlier),
            compactions=tuple(self.compactions),
            seconds=self.seconds,
            error=error,
        )
