"""How much a server really reads: by asking with longer and longer prompts, within a time.

A prompt of twice the length extends the one before, so that a server which keeps its cache reads
each token once. A server refuses what is too long, or silently leaves part of it out: then its
own count of the prompt stands still, and a prompt that shares no beginning with the others tells
this from a count without what was cached.
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

from tadpole.errors import ContextFull

_FIRST = 1024  # tokens
_STEPS = 5  # of narrowing down
_WORD = " river"
_CLOSE = 1 / 16  # how near to each other the bounds are brought

Ask = Callable[[str], Awaitable[int | None]]  # a prompt -> its tokens as the server counts them


class Ending(Enum):
    """How the probing ended."""

    HOLDS = auto()  # all that was wished for is read
    REFUSES = auto()  # more than ``holds`` is refused
    TRUNCATES = auto()  # more than ``holds`` is silently cut
    TIME = auto()  # ``holds`` is read; nobody waited for more
    UNCOUNTED = auto()  # the server counts no tokens


@dataclass(frozen=True)
class Window:
    """``holds``: tokens that were read. ``rate``: prompt tokens a second, 0 where not measured."""

    ending: Ending
    holds: int
    rate: float = 0.0


async def probe(ask: Ask, wished: int, seconds: float, told: int | None = None) -> Window:
    """Find out whether ``wished`` tokens are read, else how many.

    ``told`` is what the server says, tried first of all beyond it. ``seconds`` bounds the whole:
    what would take longer, at the speed seen so far, is not asked. Raises ModelError.
    """
    return await _Probe(ask, wished, seconds).run(told)


class _Probe:
    def __init__(self, ask: Ask, wished: int, seconds: float) -> None:
        self._ask, self._wished, self._seconds = ask, wished, seconds
        self._head = secrets.token_hex(4)
        self._begun = time.monotonic()
        self._rate = 0.0
        self._holds = 0
        self._truncates = False

    async def run(self, told: int | None) -> Window:
        few, more = await self._ask(self._prompt(50)), await self._ask(self._prompt(350))
        if few is None or more is None or more <= few:
            return Window(Ending.UNCOUNTED, 0)
        self._per_word = (more - few) / 300
        self._fixed = few - 50 * self._per_word
        self._holds = more
        above: int | None = None
        for tokens in _ladder(self._wished, told):
            if tokens <= self._holds:
                continue
            if not self._affordable(tokens):
                return Window(Ending.TIME, self._holds, self._rate)
            if not await self._reads(tokens):
                above = tokens
                break
        if above is None:
            return Window(Ending.HOLDS, self._holds, self._rate)
        for _ in range(_STEPS):
            if self._truncates or above - self._holds <= self._holds * _CLOSE:
                break
            middle = (self._holds + above) // 2
            if not self._affordable(middle):
                break
            if not await self._reads(middle):
                above = middle
        ending = Ending.TRUNCATES if self._truncates else Ending.REFUSES
        return Window(ending, self._holds, self._rate)

    async def _reads(self, tokens: int) -> bool:
        words = int((tokens - self._fixed) / self._per_word)
        begun = time.monotonic()
        try:
            counted = await self._ask(self._prompt(words))
            if counted is not None and counted < tokens * 0.75:
                counted = await self._ask(self._prompt(words, fresh=True))
        except ContextFull:
            return False
        if counted is None or counted < tokens * 0.75:
            self._truncates = True
            self._holds = max(self._holds, counted or 0)
            return False
        spent = max(time.monotonic() - begun, 1e-3)
        self._rate = (counted - self._holds) / spent
        self._holds = counted
        return True

    def _affordable(self, tokens: int) -> bool:
        left = self._seconds - (time.monotonic() - self._begun)
        expected = (tokens - self._holds) / self._rate if self._rate else 0.0
        return left > 0 and expected <= left

    def _prompt(self, words: int, *, fresh: bool = False) -> str:
        head = secrets.token_hex(4) if fresh else self._head
        return f"{head}: do not answer.{_WORD * max(1, words)}"


def _ladder(wished: int, told: int | None) -> list[int]:
    """Lengths to ask for: doubled each time, and just below and above what the server says."""
    found = {wished}
    tokens = _FIRST
    while tokens < wished:
        found.add(tokens)
        tokens *= 2
    if told:
        found |= {told - 64, told + told // 16} if told + told // 16 < wished else {told - 64}
        if told <= wished:
            found -= {n for n in found if told - 64 < n < told + told // 16}
    return sorted(n for n in found if 0 < n <= wished)
