"""A conversation in messages, for servers with the OpenAI chat interface.

The context is counted by the server's own usage; only what it has not seen yet is estimated.
There are no token ids, so such an episode can be graded but not trained on.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tadpole.leaf import calls, reasoning
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.conversations import Said, left_out
from tadpole.leaf.profile import Profile
from tadpole.protocols import ChatModel, Message, Reply, Sampling
from tadpole.trace import Observation, ToolCall
from tadpole.visible import whole


def estimate(text: str) -> int:
    """Tokens of ``text`` where no tokenizer is known: a third of its bytes, rather too many."""
    return len(text.encode("utf-8", "replace")) // 3 + 4


@dataclass(frozen=True)
class ChatDialogue:
    """What a chat model is told, and how calls are read where it writes them into its text."""

    profile: Profile
    call_format: CallFormat = CallFormat.HERMES
    count: Callable[[str], int] = estimate  # tokens of a text

    @property
    def system(self) -> str:
        """The system message."""
        return self.profile.system


@dataclass(frozen=True)
class _Turn:
    messages: tuple[Message, ...]
    tokens: int


class ChatConversation:
    """Implements :class:`tadpole.leaf.conversations.Conversation`."""

    def __init__(self, model: ChatModel, dialogue: ChatDialogue, *, statement: str):
        self._model, self._dialogue = model, dialogue
        self._numbered = 0  # calls so far, for servers that give them no id
        self._begin(statement)

    def _begin(self, told: str) -> None:
        self._told, self._turns = told, list[_Turn]()
        self._messages: list[Message] = [
            {"role": "system", "content": self._dialogue.system},
            {"role": "user", "content": told},
        ]
        tools = json.dumps(self._dialogue.profile.schemas)
        self._size = self._start = self._count(tools, self._dialogue.system, told)
        self._fresh = True  # the server has not yet counted how this begins
        self._reply, self._calls = Reply(""), tuple[ToolCall, ...]()

    @property
    def size(self) -> int:
        """See the protocol."""
        return self._size

    @property
    def turns(self) -> int:
        """See the protocol."""
        return len(self._turns)

    async def say(self, sampling: Sampling, seed: int) -> Said:
        """See the protocol."""
        reply = await self._model.reply(
            tuple(self._messages),
            tools=self._dialogue.profile.schemas,
            sampling=sampling,
            seed=seed,
        )
        # Servers that cut an emoji send half of it.
        reply = replace(reply, text=whole(reply.text), reasoning=whole(reply.reasoning))
        if reply.prompt_tokens is not None:
            self._size = reply.prompt_tokens
            if self._fresh:
                self._start = self._size
        self._fresh = False
        made = reply.generated_tokens
        if made is None:
            written = json.dumps([call.arguments for call in reply.calls])
            made = self._count(reply.text, reply.reasoning, written)
        self._size += made
        thought, rest = reply.reasoning, reply.text
        if not thought:
            thought, rest = reasoning.split(reply.text)
        self._calls = tuple(map(self._named, reply.calls))
        # Calls in the text go back as they were written, reasoning before them included.
        self._reply = replace(reply, text=rest, reasoning=thought) if self._calls else reply
        found = self._calls or calls.parse(rest, self._dialogue.call_format)
        return Said(reply.text, thought, rest.strip(), found, reply.ended, made)

    def hear(self, observations: Sequence[Observation]) -> None:
        """See the protocol."""
        new = [self._assistant(), *self._results([one.text for one in observations])]
        self._size += self._count(*(one.text for one in observations))
        before = self._start + sum(turn.tokens for turn in self._turns)
        self._turns.append(_Turn(tuple(new), max(0, self._size - before)))
        self._messages += new

    def ask(self, request: str, window: int, answer: int) -> int:
        """See the protocol."""
        cost = self._count(request)
        gone = left_out(
            self._start, [turn.tokens for turn in self._turns], max(1, window - cost - answer)
        )
        kept = [message for turn in self._turns[gone:] for message in turn.messages]
        self._messages = [*self._messages[:2], *kept]
        last = self._messages[-1]
        if last["role"] == "user":  # many templates refuse two of them in a row
            self._messages[-1] = last | {"content": f"{last['content']}\n\n{request}"}
        else:
            self._messages.append({"role": "user", "content": request})
        self._size = self._start + sum(turn.tokens for turn in self._turns[gone:]) + cost
        return gone

    def restart(self, told: str) -> None:
        """See the protocol."""
        self._begin(told)

    def close(self) -> None:
        """See the protocol: a server keeps nothing of it."""

    def _count(self, *texts: str) -> int:
        return sum(self._dialogue.count(text) for text in texts if text)

    def _named(self, call: ToolCall) -> ToolCall:
        self._numbered += 1
        return call.model_copy(update={"call_id": call.call_id or f"call_{self._numbered}"})

    def _assistant(self) -> Message:
        """The last reply as it goes back: calls that could not be read go without arguments,
        because servers parse the history again."""
        message: Message = {"role": "assistant", "content": self._reply.text}
        if self._calls:
            message["tool_calls"] = [_function(call) for call in self._calls]
        if self._reply.reasoning:
            message["reasoning_content"] = self._reply.reasoning
        return message

    def _results(self, texts: Sequence[str]) -> list[Message]:
        if self._calls:
            return [
                {"role": "tool", "tool_call_id": call.call_id, "content": text}
                for call, text in zip(self._calls, texts, strict=True)
            ]
        wrapped = (f"<tool_response>\n{text}\n</tool_response>" for text in texts)
        return [{"role": "user", "content": "\n".join(wrapped)}]


def _function(call: ToolCall) -> dict[str, Any]:
    arguments = "{}" if call.error else json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": call.name or "unknown", "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}
