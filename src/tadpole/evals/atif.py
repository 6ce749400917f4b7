"""Trajectories in ATIF, the interchange format of agent trajectories that Harbor reads (1.8).

A step is a message of the task, a turn of the policy with what its calls returned, or a summary
that it wrote when its window was full. Token ids and log-probabilities of a turn are exactly those
that were sampled; where a policy has none (a chat server) the step has counts alone.
"""

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from tadpole.trace import Compaction, Tokens, Trace, Turn

SCHEMA = "ATIF-v1.8"


def trajectory(
    trace: Trace,
    *,
    session: str,
    tools: Sequence[dict[str, Any]] = (),
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One episode as an ATIF document. ``tools`` are the schemas that the policy was told."""
    agent: dict[str, Any] = {
        "name": "leaf",
        "version": version("tadpole"),
        "model_name": trace.policy,
    }
    if tools:
        agent["tool_definitions"] = list(tools)
    steps = list(_steps(trace))
    made = [step["metrics"] for step in steps if "metrics" in step]
    total: dict[str, Any] = {
        "total_completion_tokens": sum(one["completion_tokens"] for one in made),
        "total_steps": len(steps),
    }
    if made and all("prompt_tokens" in one for one in made):
        total["total_prompt_tokens"] = sum(one["prompt_tokens"] for one in made)
    return {
        "schema_version": SCHEMA,
        "session_id": session,
        "agent": agent,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": total,
        "extra": {
            "task": trace.task,
            "stop": trace.stop.value,
            "seed": trace.seed,
            "seconds": trace.seconds,
            "recoveries": trace.recoveries,
            **({"error": trace.error} if trace.error else {}),
            **(extra or {}),
        },
    }


def _steps(trace: Trace) -> Iterator[dict[str, Any]]:
    yield {"source": "system", "message": trace.system}
    yield {"source": "user", "message": trace.statement}
    said = len(trace.turns) + len(trace.compactions)
    spans = [span for part in trace.segments for span in _sampled(part)]
    found = iter(spans if len(spans) == said else [None] * said)
    summaries = {one.turn: one for one in trace.compactions}
    for number, turn in enumerate(trace.turns):
        yield _turn(turn, number, next(found))
        if number + 1 in summaries:
            yield _summary(summaries[number + 1], next(found))


def _turn(turn: Turn, number: int, span: dict[str, Any] | None) -> dict[str, Any]:
    step: dict[str, Any] = {
        "source": "agent",
        "message": turn.text,
        "llm_call_count": 1,
        "metrics": {"completion_tokens": turn.generated_tokens, **(span or {})},
    }
    if turn.reasoning:
        step["reasoning_content"] = turn.reasoning
    names = [call.call_id or f"call_{number}_{place}" for place, call in enumerate(turn.calls)]
    if len(set(names)) < len(names):  # a server that numbers them all alike
        names = [f"call_{number}_{place}" for place in range(len(names))]
    if turn.calls:
        step["tool_calls"] = [
            {
                "tool_call_id": name,
                "function_name": call.name or "unknown",
                "arguments": call.arguments,
                **({"extra": {"error": call.error}} if call.error else {}),
            }
            for name, call in zip(names, turn.calls, strict=True)
        ]
    if turn.observations:  # fewer than calls where the episode ended inside the turn
        step["observation"] = {
            "results": [
                {"source_call_id": name, "content": seen.text, "extra": {"error": seen.error}}
                for name, seen in zip(names, turn.observations, strict=False)
            ]
        }
    return step


def _summary(one: Compaction, span: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "source": "agent",
        "message": one.text,
        "llm_call_count": 1,
        "metrics": {"completion_tokens": one.generated_tokens, **(span or {})},
        "extra": {"compaction": {"dropped": one.dropped, "before": one.before, "after": one.after}},
    }


def _sampled(tokens: Tokens) -> Iterator[dict[str, Any]]:
    """What the policy sampled in one context, turn by turn: its own tokens never touch."""
    first: int | None = None
    for at, mask in enumerate((*tokens.loss_mask, 0)):
        if mask and first is None:
            first = at
        elif not mask and first is not None:
            yield {
                "prompt_tokens": first,
                "completion_tokens": at - first,
                "completion_token_ids": list(tokens.ids[first:at]),
                "logprobs": list(tokens.logprobs[first:at]),
            }
            first = None
