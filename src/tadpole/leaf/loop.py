"""One episode: the policy's turns and the tools' answers, until one of the contract's endings."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tadpole.errors import ModelError, SandboxError
from tadpole.leaf import toolbox
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.guard import WARNING, LoopGuard, Verdict
from tadpole.leaf.record import EpisodeRecord
from tadpole.leaf.tools import ToolName
from tadpole.outcome import StopReason
from tadpole.protocols import Sampled, Sampling, Sandbox, TokenPolicy
from tadpole.settings import LeafConfig
from tadpole.trace import Observation, ToolCall, Trace, Turn


class _Stop(Exception):
    """Ends the episode from wherever it is."""

    def __init__(self, reason: StopReason, error: str = ""):
        self.reason, self.error = reason, error


async def run_episode(
    *,
    task_id: str,
    statement: str,
    sandbox: Sandbox,
    policy: TokenPolicy,
    dialogue: Dialogue,
    settings: LeafConfig,
    sampling: Sampling,
    episode: str,
    seed: int,
    on_cancel: Callable[[Trace], None] | None = None,
) -> Trace:
    """Let ``policy`` work on ``statement`` in ``sandbox``, and return all that happened.

    The trace holds every recorded step whatever the ending; of a turn that was cut only the
    text is kept, and where an ending falls inside a turn it has fewer observations than calls.
    On cancellation ``on_cancel`` gets the trace so far and CancelledError goes on. The sandbox
    stays open: its work tree is the result.
    """
    record = EpisodeRecord(
        task=task_id,
        policy=policy.fingerprint,
        seed=seed,
        system=dialogue.system,
        statement=statement,
    )
    run = _Episode(
        sandbox=sandbox,
        policy=policy,
        dialogue=dialogue,
        settings=settings,
        sampling=sampling,
        episode=episode,
        seed=seed,
        record=record,
    )
    try:
        return await run.to_its_end(statement)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel(record.trace(StopReason.CANCELLED))
        raise
    finally:
        policy.release(episode)


@dataclass(kw_only=True)
class _Episode:
    sandbox: Sandbox
    policy: TokenPolicy
    dialogue: Dialogue
    settings: LeafConfig
    sampling: Sampling
    episode: str
    seed: int
    record: EpisodeRecord
    guard: LoopGuard = field(default_factory=LoopGuard)

    async def to_its_end(self, statement: str) -> Trace:
        try:
            self._give(self.dialogue.start(statement))
            while True:
                await self._turn()
        except _Stop as stop:
            return self.record.trace(stop.reason, stop.error)

    async def _turn(self) -> None:
        record, begun = self.record, self.record.seconds
        sampled = await self._sample()
        record.sampled(sampled)
        text, thought, calls = self.dialogue.read(sampled.ids)
        turn = Turn(
            text=text,
            reasoning=thought,
            generated_tokens=len(sampled.ids),
            sample_seconds=record.seconds - begun,
        )
        if not sampled.ended:  # its calls may be half of what was meant: none of them runs
            record.turns.append(turn)
            full = len(record.ids) >= self.settings.max_context
            raise _Stop(StopReason.MAX_CONTEXT_LEN if full else StopReason.MAX_TOKENS_PER_TURN)
        record.turns.append(turn.model_copy(update={"calls": calls}))
        if not calls:
            raise _Stop(StopReason.AGENT)
        seen = await self._act(calls)
        if len(record.turns) >= self.settings.max_turns:
            raise _Stop(StopReason.MAX_TURNS)
        try:
            self._give(self.dialogue.observe(seen, sampled.ids[-1]))
        except ModelError as error:
            raise _Stop(StopReason.LLM_QUERY_ERROR, str(error)) from error

    async def _sample(self) -> Sampled:
        room = self.settings.max_context - len(self.record.ids)
        most = min(self.settings.max_tokens_per_turn, self.sampling.max_tokens, room)
        digest = hashlib.sha256(f"{self.seed} {len(self.record.turns)}".encode()).digest()
        try:
            async with asyncio.timeout(self._seconds_left()) as clock:
                sampled = await self.policy.sample(
                    tuple(self.record.ids),
                    replace(self.sampling, max_tokens=most),
                    episode=self.episode,
                    seed=int.from_bytes(digest[:4], "big"),
                )
        except TimeoutError:
            if not clock.expired():
                raise
            raise _Stop(StopReason.MAX_TIME) from None
        except ModelError as error:
            raise _Stop(StopReason.LLM_QUERY_ERROR, str(error)) from error
        if not sampled.ids or len(sampled.ids) != len(sampled.logprobs):
            counts = f"{len(sampled.ids)} tokens with {len(sampled.logprobs)} log-probabilities"
            raise _Stop(StopReason.LLM_QUERY_ERROR, f"the policy returned {counts}")
        return sampled

    async def _act(self, calls: tuple[ToolCall, ...]) -> list[Observation]:
        """Run the calls in order; each observation is recorded before the next call begins."""
        seen: list[Observation] = []
        for call in calls:
            observation = await self._call(call)
            verdict = self.guard.see(call, observation)
            if verdict is Verdict.WARN:
                text = f"{observation.text}\n{WARNING}"
                observation = observation.model_copy(update={"text": text})
            seen.append(observation)
            turns = self.record.turns
            turns[-1] = turns[-1].model_copy(update={"observations": tuple(seen)})
            if verdict is Verdict.STOP:
                raise _Stop(StopReason.LOOP)
        return seen

    async def _call(self, call: ToolCall) -> Observation:
        left = self._seconds_left()
        if call.error is not None:
            return Observation(text=f"InvalidToolCall: {call.error}", error=True)
        if call.name not in self.dialogue.profile.tools:
            names = ", ".join(self.dialogue.profile.tools)
            return Observation(
                text=f"ValueError: unknown tool {call.name}; use one of {names}", error=True
            )
        try:
            return await self.sandbox.tool(call.name, _within(call, left))
        except SandboxError as error:
            raise _Stop(StopReason.TOOL_ERROR, str(error)) from error

    def _give(self, ids: list[int]) -> None:
        if len(self.record.ids) + len(ids) >= self.settings.max_context:
            raise _Stop(StopReason.MAX_CONTEXT_LEN)
        self.record.given(ids)

    def _seconds_left(self) -> float:
        left = self.settings.max_seconds - self.record.seconds
        if left <= 0:
            raise _Stop(StopReason.MAX_TIME)
        return left


def _within(call: ToolCall, left: float) -> dict[str, Any]:
    """The arguments of a call, with a command's deadline kept inside the episode's."""
    if call.name != ToolName.BASH:
        return call.arguments
    try:
        given = toolbox.coerced(call.name, call.arguments)
        asked = toolbox.seconds(given.pop("timeout", None), given.pop("timeout_ms", None))
    except (ValueError, TypeError):
        return call.arguments  # the toolbox says what is wrong with them
    return call.arguments if asked <= left else {**given, "timeout_ms": left * 1000}
