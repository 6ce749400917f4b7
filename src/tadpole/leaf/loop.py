"""One episode: the policy's turns and the tools' answers, until one of the contract's endings."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tadpole.errors import ContextFull, ModelError, SandboxError
from tadpole.leaf import compaction, toolbox
from tadpole.leaf.conversations import Conversation, Said
from tadpole.leaf.conversations.chat import ChatConversation, ChatDialogue
from tadpole.leaf.conversations.tokens import TokenConversation
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.guard import WARNING, LoopGuard, Verdict
from tadpole.leaf.record import EpisodeRecord
from tadpole.leaf.tools import ToolName
from tadpole.outcome import StopReason
from tadpole.protocols import ChatModel, Sampling, Sandbox, TokenPolicy
from tadpole.settings import LeafConfig
from tadpole.trace import Compaction, Observation, ToolCall, Trace, Turn


class _Stop(Exception):
    """Ends the episode from wherever it is."""

    def __init__(self, reason: StopReason, error: str = ""):
        self.reason, self.error = reason, error


async def run_episode(
    *,
    task_id: str,
    statement: str,
    sandbox: Sandbox,
    policy: TokenPolicy | ChatModel,
    dialogue: Dialogue | ChatDialogue,
    settings: LeafConfig,
    sampling: Sampling,
    episode: str,
    seed: int,
    on_cancel: Callable[[Trace], object] | None = None,
    on_turn: Callable[[Turn], object] | None = None,
) -> Trace:
    """Let ``policy`` work on ``statement`` in ``sandbox``, and return all that happened.

    A TokenPolicy goes with a Dialogue, a ChatModel with a ChatDialogue. The trace holds every
    recorded step whatever the ending; of a turn that was cut only the text is kept, and where
    an ending falls inside a turn it has fewer observations than calls. On cancellation, and on
    any error that is none of the endings, ``on_cancel`` gets the trace so far and the exception
    goes on; ``on_turn`` gets each whole turn before its calls run. The sandbox stays open: its
    work tree is the result.
    """
    record = EpisodeRecord(
        task=task_id,
        policy=policy.fingerprint,
        seed=seed,
        system=dialogue.system,
        statement=statement,
    )
    talk: Conversation
    if isinstance(dialogue, ChatDialogue):
        talk = ChatConversation(cast(ChatModel, policy), dialogue, statement=statement)
    else:
        tokens = cast(TokenPolicy, policy)
        talk = TokenConversation(tokens, dialogue, record, statement=statement, episode=episode)
    run = _Episode(
        statement=statement,
        sandbox=sandbox,
        talk=talk,
        tools=dialogue.profile.tools,
        settings=settings,
        sampling=sampling,
        seed=seed,
        record=record,
        on_turn=on_turn,
    )
    try:
        return await run.to_its_end()
    except BaseException as error:
        if on_cancel is not None:
            cut = isinstance(error, asyncio.CancelledError)
            told = "" if cut else f"{type(error).__name__}: {error}"
            on_cancel(record.trace(StopReason.CANCELLED, told))
        raise
    finally:
        talk.close()


@dataclass(kw_only=True)
class _Episode:
    statement: str
    sandbox: Sandbox
    talk: Conversation
    tools: tuple[ToolName, ...]
    settings: LeafConfig
    sampling: Sampling
    seed: int
    record: EpisodeRecord
    on_turn: Callable[[Turn], object] | None
    guard: LoopGuard = field(default_factory=LoopGuard)

    async def to_its_end(self) -> Trace:
        try:
            while True:
                await self._turn()
        except _Stop as stop:
            return self.record.trace(stop.reason, stop.error)

    async def _turn(self) -> None:
        record, begun = self.record, self.record.seconds
        said = await self._say(self.settings.max_tokens_per_turn)
        turn = Turn(
            text=said.text,
            reasoning=said.reasoning,
            generated_tokens=said.generated_tokens,
            sample_seconds=record.seconds - begun,
        )
        if not said.ended:  # its calls may be half of what was meant: none of them runs
            record.turns.append(turn)
            raise self._cut()
        record.turns.append(turn.model_copy(update={"calls": said.calls}))
        if self.on_turn is not None:
            self.on_turn(record.turns[-1])
        if not said.calls:
            raise _Stop(StopReason.AGENT)
        seen = await self._act(said.calls)
        if len(record.turns) >= self.settings.max_turns:
            raise _Stop(StopReason.MAX_TURNS)
        try:
            self.talk.hear(seen)
            if compaction.is_due(self.settings, self.talk):
                await self._compact()
        except ModelError as error:
            raise _Stop(StopReason.LLM_QUERY_ERROR, str(error)) from error

    async def _compact(self) -> None:
        before, begun = self.talk.size, self.record.seconds
        room = compaction.answer_tokens(self.settings)
        window = min(self.settings.compaction_window, self.settings.max_context)
        dropped = self.talk.ask(compaction.REQUEST, window, room)
        said = await self._say(room, "summary")
        lost = self._cut() if not said.spoken and not said.ended else None  # all was reasoning
        if not lost:
            self.talk.restart(compaction.told_again(self.statement, said.spoken))
        event = Compaction(
            turn=len(self.record.turns),
            dropped=dropped,
            before=before,
            after=0 if lost else self.talk.size,
            text=said.text,
            summary=said.spoken,
            generated_tokens=said.generated_tokens,
            sample_seconds=self.record.seconds - begun,
        )
        self.record.compactions.append(event)
        if lost:
            raise lost

    async def _say(self, most: int, what: str = "") -> Said:
        room = self.settings.max_context - self.talk.size
        if room <= 0:
            raise _Stop(StopReason.MAX_CONTEXT_LEN)
        name = f"{self.seed} {len(self.record.turns)}{what}"
        digest = hashlib.sha256(name.encode()).digest()
        most = min(most, self.sampling.max_tokens, room)
        try:
            async with asyncio.timeout(self._seconds_left()) as clock:
                return await self.talk.say(
                    replace(self.sampling, max_tokens=most), int.from_bytes(digest[:4], "big")
                )
        except TimeoutError:
            if not clock.expired():
                raise
            raise _Stop(StopReason.MAX_TIME) from None
        except ContextFull as error:
            if self.record.turns:
                raise _Stop(StopReason.MAX_CONTEXT_LEN) from error
            hint = "lower leaf.max_context and leaf.max_tokens_per_turn to what it can read"
            raise _Stop(StopReason.LLM_QUERY_ERROR, f"{error}; {hint}") from error
        except ModelError as error:
            raise _Stop(StopReason.LLM_QUERY_ERROR, str(error)) from error

    def _cut(self) -> _Stop:
        full = self.talk.size >= self.settings.max_context
        return _Stop(StopReason.MAX_CONTEXT_LEN if full else StopReason.MAX_TOKENS_PER_TURN)

    async def _act(self, calls: tuple[ToolCall, ...]) -> list[Observation]:
        """Run the calls in order; each observation is recorded before the next call begins."""
        seen: list[Observation] = []
        self.guard.next_turn()
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
        if call.name not in self.tools:
            names = ", ".join(self.tools)
            return Observation(
                text=f"ValueError: unknown tool {call.name[:60]}; use one of {names}", error=True
            )
        try:
            arguments = _within(call, left, self.settings.observation_chars)
            return await self.sandbox.tool(call.name, arguments)
        except SandboxError as error:
            raise _Stop(StopReason.TOOL_ERROR, str(error)) from error

    def _seconds_left(self) -> float:
        left = self.settings.max_seconds - self.record.seconds
        if left <= 0:
            raise _Stop(StopReason.MAX_TIME)
        return left


def _within(call: ToolCall, left: float, chars: int) -> dict[str, Any]:
    """The arguments of a call, with a command's deadline kept inside the episode's, and results
    of at most ``chars`` (0: the tool's own limit)."""
    given = call.arguments
    if call.name == ToolName.BASH:
        try:
            typed = toolbox.coerced(call.name, given)
            asked = toolbox.seconds(typed.pop("timeout", None), typed.pop("timeout_ms", None))
        except (ValueError, TypeError):
            return given  # the toolbox says what is wrong with them
        if asked > left:
            given = {**typed, "timeout_ms": left * 1000}
    bounded = chars and call.name in (ToolName.READ, ToolName.GLOB, ToolName.BASH)
    return {**given, "max_chars": chars} if bounded else given
