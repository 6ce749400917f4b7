"""Attempts by the Leaf loop, over a policy in tokens or a chat model behind a server."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.loop import run_episode
from tadpole.outcome import STOP_POLICY
from tadpole.protocols import ChatModel, Sampling, Sandbox, SandboxEngine, TokenPolicy
from tadpole.settings import LeafConfig
from tadpole.trace import Turn
from tadpole.workbench.network import connected
from tadpole.workbench.proxy import Proxy
from tadpole.workbench.solver import Ask, Attempted, Event, EventKind, Told, watched

_MARKUP = re.compile(r"<tool_call>|<function=")  # where the calls of a text begin


class LeafSolver:
    """The Leaf loop. ``dialogue`` is the one that goes with ``policy``: tokens or messages."""

    def __init__(
        self,
        engine: SandboxEngine,
        policy: TokenPolicy | ChatModel,
        dialogue: Dialogue | ChatDialogue,
        settings: LeafConfig,
        sampling: Sampling,
    ) -> None:
        self._engine, self._policy, self._dialogue = engine, policy, dialogue
        self._settings, self._sampling = settings, sampling

    @property
    def model(self) -> str:
        """The fingerprint of the weights, or the server's name for its model."""
        return self._policy.fingerprint

    @property
    def harness(self) -> str:
        """Version and profile."""
        return f"tadpole {version('tadpole')}, leaf {self._dialogue.profile.name.value}"

    async def attempt(self, ask: Ask) -> Attempted:
        """Run one episode. Raises SandboxError."""
        proxy = watched(ask)
        async with self._box(ask, proxy) as box:
            trace = await run_episode(
                task_id=ask.name,
                statement=ask.statement,
                sandbox=Told(box, ask),
                policy=self._policy,
                dialogue=self._dialogue,
                settings=self._settings,
                sampling=self._sampling,
                episode=ask.name,
                seed=ask.seed,
                on_turn=self._said(ask),
            )
            delta = await box.delta() if STOP_POLICY[trace.stop].grade else ()
            ask.tell(
                Event(
                    attempt=ask.number,
                    kind=EventKind.STOP,
                    name=trace.stop.value,
                    text=trace.error or (trace.turns[-1].text if trace.turns else ""),
                )
            )
            kind = str(getattr(box, "kind", ""))
            return Attempted(delta, trace, box.left_out, kind, proxy.reached)

    def _said(self, ask: Ask) -> Callable[[Turn], None]:
        """Tells of a turn what its box never hears of: its words, and calls that cannot run."""

        def tell(turn: Turn) -> None:
            prose = _MARKUP.split(turn.text, maxsplit=1)[0].strip()
            if prose and turn.calls:  # the words of the last turn are told with its ending
                ask.tell(Event(attempt=ask.number, kind=EventKind.SAY, text=prose))
            for call in turn.calls:
                known = call.name in self._dialogue.profile.tools
                if not known or call.error:
                    why = call.error or "there is no such tool"
                    event = Event(attempt=ask.number, kind=EventKind.CALL, name=call.name)
                    more = {"arguments": call.arguments, "text": f"not run: {why}", "error": True}
                    ask.tell(event.model_copy(update=more))

        return tell

    @asynccontextmanager
    async def _box(self, ask: Ask, proxy: Proxy) -> AsyncIterator[Sandbox]:
        if ask.network:
            async with connected(self._engine, ask.spec, ask.python, proxy) as box:
                yield box
            return
        box = await self._engine.start(ask.spec)
        try:
            yield box
        finally:
            await box.close()
