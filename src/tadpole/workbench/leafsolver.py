"""Attempts by the Leaf loop, over a policy in tokens or a chat model behind a server."""

from importlib.metadata import version

from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.loop import run_episode
from tadpole.outcome import STOP_POLICY
from tadpole.protocols import ChatModel, Sampling, SandboxEngine, TokenPolicy
from tadpole.settings import LeafConfig
from tadpole.workbench.solver import Ask, Attempted, Event, EventKind, Told


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
        box = await self._engine.start(ask.spec)
        try:
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
            return Attempted(delta, trace, getattr(box, "left_out", 0))
        finally:
            await box.close()
