"""The Leaf agent for Harbor: the same loop and tools as in training, in a Tadpole box.

``harbor run ... -e tadpole.pilot.harbor.environment:BoxEnvironment
-a tadpole.pilot.harbor.agent:LeafAgent -m openai/NAME`` asks the server at OPENAI_BASE_URL.
Options are given as ``--ak max_turns=30``. Needs the extra ``tadpole[harbor]``.
"""

import json
from importlib.metadata import version
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from tadpole.errors import ModelError, SandboxError, UsageError
from tadpole.evals.atif import trajectory
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.loop import run_episode
from tadpole.leaf.profile import make_profile
from tadpole.models.openai_chat import OpenAIChat
from tadpole.outcome import STOP_POLICY, StopReason
from tadpole.pilot.harbor.environment import BoxEnvironment
from tadpole.settings import EvalConfig, LeafConfig


class LeafAgent(BaseAgent):  # type: ignore[misc]
    """One episode for one trial. Options: those of ``leaf.*``, and ``seed``."""

    capabilities = AgentCapabilities(atif=True)

    def __init__(self, *args: Any, seed: int | str = 0, **options: Any) -> None:
        own = {name: options.pop(name) for name in list(options) if name in LeafConfig.model_fields}
        super().__init__(*args, **options)
        self.settings = LeafConfig.model_validate(own)
        self.seed = int(seed)

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "leaf"

    def version(self) -> str | None:
        """The version of this package."""
        return version("tadpole")

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing is installed. Raises UsageError for an environment that is no box."""
        if not isinstance(environment, BoxEnvironment):
            raise UsageError(
                "the Leaf agent works in Tadpole's boxes: add "
                "-e tadpole.pilot.harbor.environment:BoxEnvironment"
            )
        if not self.model_name:
            raise UsageError("no model to ask: add -m openai/NAME, a name that your server knows")

    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Work on the task, and leave the trajectory. Raises ModelError or SandboxError."""
        dialogue = ChatDialogue(make_profile(self.settings.profile, CallFormat.HERMES))
        policy = OpenAIChat((self.model_name or "").partition("/")[2] or self.model_name)
        trace = await run_episode(
            task_id=environment.task.id,
            statement=instruction,
            sandbox=environment.sandbox,
            policy=policy,
            dialogue=dialogue,
            settings=self.settings,
            sampling=EvalConfig().at(self.settings.max_tokens_per_turn),
            episode=str(self.session_id),
            seed=self.seed,
        )
        document = trajectory(
            trace, session=str(self.session_id), tools=list(dialogue.profile.schemas)
        )
        (self.logs_dir / "trajectory.json").write_text(json.dumps(document, indent=1))
        context.n_output_tokens = trace.generated_tokens
        context.metadata = {"stop": trace.stop.value, "turns": len(trace.turns)}
        if not STOP_POLICY[trace.stop].grade:
            failure = ModelError if trace.stop is StopReason.LLM_QUERY_ERROR else SandboxError
            raise failure(trace.error or trace.stop.value)
