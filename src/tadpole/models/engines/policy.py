"""A policy that is sampled by servers and trained here.

New weights are written to a directory that the servers can read, and each server loads them
between two turns: turns that have begun end on the old weights, no new one begins meanwhile. So
all tokens of a turn come from one version, whose number travels with them. A server that failed
or that did not take the newest weights is not asked again until it has loaded them. It is asked
to several times: a moment later it may be done with what it was busy with.

An episode stays with one server, which may then keep its key-value cache. Every request carries
the whole episode in token ids, so that another server can go on where one has died.
"""

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tadpole.errors import ModelError
from tadpole.models.engines.engine import Answer, Engine, EngineDown
from tadpole.models.room import room
from tadpole.protocols import Sampled, Sampling

CURRENT = "current"  # a link to the newest weights
PAUSES = (1.0, 5.0)  # seconds before a server is asked to load again
PATIENCE = 60.0  # seconds after which none is asked again: all others wait meanwhile


@dataclass(eq=False)
class _Place:
    engine: Engine
    weights: str | None = None  # what it has loaded; None: not to be asked
    load: int = 0  # turns under way
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # none is
    trouble: str = ""

    def __post_init__(self) -> None:
        self.idle.set()

    def begin(self) -> None:
        self.load += 1
        self.idle.clear()

    def end(self) -> None:
        self.load -= 1
        if not self.load:
            self.idle.set()


class ServerPolicy:
    """Implements :class:`tadpole.protocols.TrainedPolicy` on one or more servers.

    ``write`` writes the learner's weights into a new directory. ``directory`` is where they are
    handed over; only the newest are kept. ``pauses`` (seconds) come before each further try to have
    a server load them.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        write: Callable[[Path], None],
        directory: Path,
        end_ids: Sequence[int],
        fingerprint: str,
        max_context: int,
        pauses: Sequence[float] = PAUSES,
    ):
        if not engines:
            raise ModelError("no rollout server is named: set --policy.urls")
        self.version = 0
        self._fingerprint = fingerprint
        self._places = [_Place(engine) for engine in engines]
        self._write, self._directory = write, directory.absolute()
        self._end_ids, self._max_context = frozenset(end_ids), max_context
        self._home: dict[str, _Place] = {}
        self._weights: Path | None = None
        self._pauses = tuple(pauses)
        self._open = asyncio.Event()
        self._open.set()
        self._publishing = asyncio.Lock()

    @property
    def fingerprint(self) -> str:
        """The base weights and the number of updates since."""
        return self._fingerprint

    async def sample(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int
    ) -> Sampled:
        """See the protocol. Raises ModelError where no server gives a turn that can be used."""
        left = room(prompt_ids, self._max_context)
        if self._weights is None:
            await self._first()
        asked = replace(sampling, max_tokens=min(sampling.max_tokens, left))
        trouble = ""
        for _ in range(len(self._places) + 1):
            place = await self._place(episode)
            version = self.version
            try:
                answer = await self._turn(place, prompt_ids, asked, seed)
            except EngineDown as error:
                place.weights, trouble = None, str(error)
                continue
            return Sampled(answer.ids, answer.logprobs, answer.ended, version)
        raise ModelError(trouble)

    def release(self, episode: str) -> None:
        """See the protocol."""
        self._home.pop(episode, None)

    async def rest(self) -> None:
        """Nothing to give back: the memory is the servers'."""

    async def renew(self, fingerprint: str, version: int) -> None:
        """See the protocol. Raises ModelError where no server takes the weights."""
        async with self._publishing:
            self._fingerprint = fingerprint
            await self._publish(version)

    def close(self) -> None:
        """Let go of the servers' connections. Idempotent."""
        for place in self._places:
            place.engine.close()

    async def _turn(
        self, place: _Place, prompt_ids: Sequence[int], asked: Sampling, seed: int
    ) -> Answer:
        name = place.weights
        place.begin()
        try:
            answer = await place.engine.generate(prompt_ids, asked, self._end_ids, seed)
        finally:
            place.end()
        if answer.weights not in {None, name}:
            raise EngineDown(
                f"{place.engine.url} answers from weights {answer.weights}, not {name}: was it "
                "started again?"
            )
        return answer

    def _is_ready(self, place: _Place) -> bool:
        return self._weights is not None and place.weights == self._weights.name

    async def _place(self, episode: str) -> _Place:
        """The episode's server, else the least loaded one, with the newest weights.

        Nothing is awaited between the choice and its use: no weights change in between.
        """
        while True:
            await self._open.wait()
            home = self._home.get(episode)
            if home is not None and self._is_ready(home):
                return home
            ready = [place for place in self._places if self._is_ready(place)]
            if ready:
                self._home[episode] = min(ready, key=lambda place: place.load)
                return self._home[episode]
            async with self._publishing:  # all have failed: they may be back
                if self._weights is not None and not any(map(self._is_ready, self._places)):
                    # One that has turns under way may hang, and loads nothing before they end.
                    free = [place for place in self._places if not place.load]
                    await self._load(self._weights, free or self._places)

    async def _first(self) -> None:
        async with self._publishing:
            if self._weights is None:
                await self._publish(self.version)

    async def _publish(self, version: int) -> None:
        """Hand the learner's weights over and have them loaded."""
        before = self._weights
        # No name comes twice: by it a server says what it samples from.
        target = self._directory / f"version-{version:05d}-{secrets.token_hex(4)}"
        await asyncio.to_thread(self._hand_over, target)
        self._open.clear()
        try:
            await self._load(target, self._places)
            self._weights, self.version = target, version
        finally:
            self._open.set()
        if before is not None and before != target:
            shutil.rmtree(before, ignore_errors=True)

    def _hand_over(self, target: Path) -> None:
        beside = target.with_name(f".{target.name}.part")
        for old in (beside, target):
            shutil.rmtree(old, ignore_errors=True)
        beside.mkdir(parents=True)
        self._write(beside)
        os.replace(beside, target)
        link = self._directory / f".{CURRENT}.part"
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)
        os.replace(link, self._directory / CURRENT)

    async def _load(self, weights: Path, places: Sequence[_Place]) -> None:
        """Have ``places`` load ``weights``, each once its turns have ended.

        Raises ModelError where none does.
        """
        await asyncio.gather(*(self._have_loaded(place, weights) for place in places))
        if not any(place.weights for place in places):
            raise ModelError(
                "no rollout server has the weights: " + "; ".join(place.trouble for place in places)
            )

    async def _have_loaded(self, place: _Place, weights: Path) -> None:
        place.weights = None
        await place.idle.wait()
        begun = time.monotonic()
        for pause in (0.0, *self._pauses):
            await asyncio.sleep(pause)
            try:
                await place.engine.load(weights, weights.name)
            except EngineDown as error:
                place.trouble = str(error)
                if time.monotonic() - begun > PATIENCE:
                    return
            except ModelError as error:  # it refuses them
                place.trouble = str(error)
                return
            else:
                place.weights, place.trouble = weights.name, ""
                return
