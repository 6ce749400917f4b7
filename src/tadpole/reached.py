"""A policy behind a server: who speaks for it, and what it is told. Loads no torch."""

from dataclasses import dataclass

from tadpole.config import Config
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.profile import make_profile
from tadpole.models.openai_chat import OpenAIChat
from tadpole.protocols import ChatModel
from tadpole.settings import SERVED


@dataclass(frozen=True)
class Served:
    """What episodes need of a policy behind a server; there is nothing to update."""

    policy: ChatModel
    dialogue: ChatDialogue

    def close(self) -> None:
        """Nothing is held."""


def reach_policy(config: Config) -> Served:
    """The model ``openai:NAME`` of the configuration.

    Raises ConfigError where OPENAI_BASE_URL is not set. The server is not asked yet.
    """
    profile = make_profile(config.leaf.profile, CallFormat.HERMES)
    model = OpenAIChat(config.policy.model.removeprefix(SERVED))
    return Served(model, ChatDialogue(profile))
