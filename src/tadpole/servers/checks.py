"""What an episode will do with a server, done once each: speak, call, call twice, read a result.

The requests go through the very client that episodes use, with the very tools, so that what holds
here holds there. Each check gives findings; ModelError goes through to whoever asked.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tadpole.errors import ModelError
from tadpole.leaf import calls, reasoning
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.profile import Profile
from tadpole.leaf.tools import ToolName
from tadpole.protocols import ChatModel, Message, Reply, Sampling
from tadpole.servers.advice import Fault, advice
from tadpole.servers.finding import Finding
from tadpole.servers.kind import ServerKind

_SPOKEN = 256  # tokens that an answer may take, reasoning included
_CALLED = 2048
_SLOW = 5.0  # tokens a second below which an episode takes hours


@dataclass(frozen=True)
class Examinee:
    """A model behind a server, and how it is asked."""

    chat: ChatModel
    model: str
    kind: ServerKind
    profile: Profile

    async def ask(
        self, messages: Sequence[Message], most: int, *, tools: bool = False, seed: int = 0
    ) -> Reply:
        """One greedy reply. Raises ModelError."""
        return await self.chat.reply(
            messages,
            tools=self.profile.schemas if tools else (),
            sampling=Sampling(temperature=0.0, max_tokens=most),
            seed=seed,
        )

    def fix(self, fault: Fault, **more: object) -> str:
        """What to change about ``fault`` with this server."""
        return advice(fault, self.kind, self.model, **more)


async def speaks(who: Examinee) -> list[Finding]:
    """An answer, its speed, and whether its reasoning is apart."""
    begun = time.monotonic()
    reply = await who.ask([_user("What is 17 * 23? Answer in one sentence.")], _SPOKEN)
    seconds = time.monotonic() - begun
    if reply.text.strip():
        first = Finding("answer", True, f"{reply.text.strip()[:60]!r}")
    elif not reply.ended:
        first = _endless(who, "answer", _SPOKEN)
    elif not reply.reasoning:
        return [Finding("answer", False, "the answer is empty", fix=who.fix(Fault.SILENT))]
    else:
        first = Finding("answer", True, "only reasoning")
    found = [first, _speed(who, reply, seconds)]
    inside, _ = reasoning.split(reply.text)
    if reply.reasoning:
        found.append(Finding("reasoning", True, "comes in a field of its own"))
    elif inside or "<think>" in reply.text:
        detail = "comes within the text; Leaf takes it out, calls in it are lost"
        found.append(Finding("reasoning", True, detail, fix=who.fix(Fault.REASONING)))
    else:
        found.append(Finding("reasoning", True, "none"))
    return found


def _speed(who: Examinee, reply: Reply, seconds: float) -> Finding:
    if reply.generated_tokens is None:
        detail = "not known: the server does not count tokens"
        return Finding("speed", True, detail, fix=who.fix(Fault.NO_USAGE))
    rate = reply.generated_tokens / max(seconds, 1e-3)
    told = f"{rate:.1f} tokens a second ({reply.generated_tokens} in {seconds:.1f} s)"
    slow = rate < _SLOW and reply.generated_tokens >= 8
    return Finding("speed", True, told, {"rate": rate}, who.fix(Fault.SLOW) if slow else "")


async def calls_a_tool(who: Examinee) -> Finding:
    """One call of a tool, natively or in the text."""
    messages = _opening(who, f"Call the tool {ToolName.READ} to see the file notes.txt.")
    try:
        reply = await who.ask(messages, _CALLED, tools=True)
    except ModelError as error:
        await _still_there(who)
        return Finding("tool call", False, str(error), fix=who.fix(Fault.TOOLS_REFUSED))
    if reply.calls:
        return _native(who, reply)
    if not reply.ended:
        return _endless(who, "tool call", _CALLED)
    thought, rest = reasoning.split(reply.text)
    written = calls.parse(rest, CallFormat.HERMES)
    if any(call.error is None and call.name in who.profile.tools for call in written):
        form = "XML" if "<function=" in rest else "JSON"
        detail = f"comes as {form} within the text; Leaf reads it there"
        return Finding("tool call", True, detail, {"form": form}, who.fix(Fault.CALL_IN_TEXT))
    if written:
        detail = f"comes within the text and cannot be read: {written[0].error or rest[:80]!r}"
        return Finding("tool call", False, detail, fix=who.fix(Fault.BROKEN_CALL))
    plain = await who.ask(messages, 1)
    if reply.prompt_tokens and plain.prompt_tokens:
        described = reply.prompt_tokens - plain.prompt_tokens
        if described < 50:  # the five schemas are many hundred
            detail = "the model is not told of its tools: the chat template leaves them out"
            return Finding("tool call", False, detail, fix=who.fix(Fault.TOOLS_LOST))
    said = " ".join((rest or thought).split())[:60]
    detail = f"the model was told of its tools and called none; it said {said!r}"
    return Finding("tool call", False, detail, fix=who.fix(Fault.NO_CALL))


def _endless(who: Examinee, name: str, most: int) -> Finding:
    """Nothing is known of what comes after."""
    detail = f"cannot be told: not at its end after {most:,} tokens"
    return Finding(name, True, detail, fix=who.fix(Fault.ENDLESS))


def _native(who: Examinee, reply: Reply) -> Finding:
    first = reply.calls[0]
    if first.error or first.name not in who.profile.tools:
        detail = f"cannot be read: {first.error or f'there is no tool {first.name!r}'}"
        return Finding("tool call", False, detail, fix=who.fix(Fault.BROKEN_CALL))
    return Finding("tool call", True, "comes as the server's own", {"form": "native"})


async def calls_two_tools(who: Examinee) -> Finding:
    """Two calls in one turn."""
    told = f"Call the tool {ToolName.READ} twice in this one turn: for a.txt, and for b.txt."
    reply = await who.ask(_opening(who, told), _CALLED, tools=True)
    found = reply.calls or calls.parse(reasoning.split(reply.text)[1], CallFormat.HERMES)
    broken = [call for call in found if call.error or call.name not in who.profile.tools]
    if broken:
        detail = f"one of two cannot be read: {broken[0].error or f'no tool {broken[0].name!r}'}"
        return Finding("two calls", False, detail, fix=who.fix(Fault.BROKEN_CALL))
    if not reply.ended:
        return _endless(who, "two calls", _CALLED)
    if len(found) < 2:
        detail = f"{len(found)} of two calls in one turn"
        return Finding("two calls", True, detail, fix=who.fix(Fault.ONE_CALL))
    ids = {call.call_id for call in found if call.call_id}
    if reply.calls and len(ids) != len(found):
        detail = "come without an id each; Leaf numbers them"
        return Finding("two calls", True, detail)
    return Finding("two calls", True, "come in one turn, each on its own")


async def reads_a_result(who: Examinee) -> Finding:
    """A tool's result in the middle of a conversation: taken, and seen by the model."""
    try:
        short = await who.ask(_with_result(who, "quartz"), 64, tools=True)
        long = await who.ask(_with_result(who, "quartz" + " river" * 300), 1, tools=True)
    except ModelError as error:
        await _still_there(who)
        return Finding("tool result", False, str(error), fix=who.fix(Fault.RESULT))
    if "quartz" in (short.text + short.reasoning).lower():
        return Finding("tool result", True, "is seen by the model")
    if short.prompt_tokens and long.prompt_tokens:
        if long.prompt_tokens - short.prompt_tokens >= 150:
            return Finding("tool result", True, "reaches the model")
        detail = "does not reach the model: the chat template leaves it out"
        return Finding("tool result", False, detail, fix=who.fix(Fault.RESULT))
    detail = "is taken; whether the model sees it cannot be told"
    return Finding("tool result", True, detail, fix=who.fix(Fault.NO_USAGE))


async def _still_there(who: Examinee) -> None:
    """Raises ModelError where the server answers nothing any more: then tools are not to blame."""
    await who.ask([_user("Hello.")], 1)


def _with_result(who: Examinee, text: str) -> list[Message]:
    function = {"name": ToolName.READ.value, "arguments": '{"file_path": "word.txt"}'}
    call: dict[str, Any] = {"id": "call_1", "type": "function", "function": function}
    return [
        *_opening(who, "Which word is in word.txt? Read it, then answer with that word alone."),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": text},
    ]


def _opening(who: Examinee, told: str) -> list[Message]:
    return [{"role": "system", "content": who.profile.system}, _user(told)]


def _user(text: str) -> Message:
    return {"role": "user", "content": text}
