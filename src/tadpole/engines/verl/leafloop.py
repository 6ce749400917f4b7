"""Leaf as an agent loop of verl: it asks for an episode, ours plays it, tokens go back as they are.

What carries loss is what the policy sampled; nothing is tokenized again, and verl's own builder
of conversations is not asked.
"""

import asyncio
from typing import Any

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from tadpole.engines.verl.places import RAW, SESSIONS
from tadpole.engines.verl.playing import playground
from tadpole.rl.samples import versions
from tadpole.trace import Attempt, Tokens, Trace


class LeafAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """One episode of one task in one sandbox, graded by its hidden tests.

    verl makes one for every episode; its own initializer, which builds what tokenizes
    conversations, is left out.
    """

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any):
        self.config = trainer_config.config
        self.server_manager, self.tokenizer = server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> AgentLoopOutput:
        """See verl. ``sampling_params`` are those of our configuration already.

        Raises where the episode could not be played: verl throws its group away.
        """
        ground = await asyncio.to_thread(playground, self.config.tadpole.run)
        drawn, session = int(fields["global_steps"]), int(fields["session_id"])
        # Several draws of one task may be under way: the drawing makes the sample unique.
        sample = f"{fields['uid']}".replace("-", "")
        number = int(sample[:12], 16) * SESSIONS + session
        attempt, trace = await ground.play(
            self.server_manager, self.tokenizer, fields["extra_info"]["task"], number, drawn
        )
        return output_of(attempt, trace, self.tokenizer.eos_token_id)


def output_of(attempt: Attempt, trace: Trace, filler: int) -> AgentLoopOutput:
    """An episode as verl holds it: ``prompt_ids`` up to the first sampled token, then the rest.

    ``filler`` stands for the response of an episode in which nothing was sampled; it carries no
    loss. Raises ValueError for an episode of several contexts.
    """
    if trace.earlier:
        raise ValueError("an episode that was compacted has no single row of tokens")
    tokens = trace.tokens if trace.tokens.ids else Tokens()
    first = tokens.loss_mask.index(1) if 1 in tokens.loss_mask else len(tokens.ids)
    rest = slice(first, None)
    sampled = first < len(tokens.ids)
    oldest, newest = versions(trace)
    extra = {
        "reward_extra_info": {RAW: float(attempt.reward or 0.0)},
        "attempt": attempt.model_dump_json(),
        "min_global_steps": oldest if sampled else 0,
        "max_global_steps": newest if sampled else 0,
    }
    return AgentLoopOutput(
        prompt_ids=list(tokens.ids[:first]) or [filler],
        response_ids=list(tokens.ids[rest]) if sampled else [filler],
        response_mask=list(tokens.loss_mask[rest]) if sampled else [0],
        response_logprobs=list(tokens.logprobs[rest]) if sampled else [0.0],
        reward_score=float(attempt.reward or 0.0),
        num_turns=len(trace.turns),
        metrics=AgentLoopMetrics(),
        extra_fields=extra,
    )
