"""When a context is full, the policy itself sums it up and goes on from its summary.

As published: once the history has rho * W tokens, the oldest whole turns are left out until the
rest fits C = max(1, W - tokens(P) - floor(0.2 W)), the request P is put to the policy, and the
episode goes on from the system message, the task and what it answered. Ours: where W is above
the hard limit of the context, C is counted from that.
"""

import math

from tadpole.leaf.conversations import Conversation
from tadpole.settings import LeafConfig

REQUEST = """\
The context is nearly full, and all of it but the task will now be removed. Write down what you \
need to go on: what you found out and where (files, lines, names), what you have changed so far, \
what you tried that did not work, and what is left to do. Do not call a tool."""

_SUMMARY = "The work has already begun. This is what you noted so far:"


def is_due(settings: LeafConfig, talk: Conversation) -> bool:
    """Whether the history calls for a summary; never before a turn was made since the last."""
    window = settings.compaction_window
    return bool(window and talk.turns and talk.size >= settings.compaction_at * window)


def answer_tokens(settings: LeafConfig) -> int:
    """Room for the summary: floor(0.2 W)."""
    return math.floor(settings.compaction_window / 5)


def told_again(statement: str, summary: str) -> str:
    """What the policy is told when it goes on."""
    return f"{statement}\n\n{_SUMMARY}\n{summary or '(nothing)'}"
