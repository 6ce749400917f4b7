"""Tool calls in the text of a policy: two formats, read tolerantly and written exactly.
(A server's own ``tool_calls`` are read by :mod:`tadpole.leaf.calls.native`.)

What had to be guessed at is marked ``repaired``; what cannot be read becomes a call whose
``error`` says what is wrong and where, so that the policy is told and nothing is raised.
"""

import re
from enum import StrEnum

from tadpole.leaf.calls import hermes, qwen_xml
from tadpole.trace import ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_OPENING = re.compile(r"<tool_call>\s*|(?=<function=)")


class CallFormat(StrEnum):
    """How a model writes its tool calls."""

    HERMES = "hermes"  # JSON between <tool_call> tags: Qwen2.5, Qwen3, the embedded policy
    QWEN_XML = "qwen_xml"  # <function=NAME><parameter=KEY>: Qwen3.5, Qwen3-Coder


def format_of(chat_template: str) -> CallFormat:
    """The format that a model's chat template teaches; Hermes where it teaches none."""
    return CallFormat.QWEN_XML if "<function=" in chat_template else CallFormat.HERMES


def render(call: ToolCall, form: CallFormat) -> str:
    """A well-formed call in ``form``; :func:`parse` reads the same call back."""
    body = hermes.render(call) if form is CallFormat.HERMES else qwen_xml.render(call)
    return f"{_OPEN}\n{body}\n{_CLOSE}"


def parse(text: str, form: CallFormat) -> tuple[ToolCall, ...]:
    """All calls of one turn, in order, sound or not. ``text`` comes without the reasoning.

    A call in the other format, without its tags or with the last tag missing is accepted.
    """
    calls: list[ToolCall] = []
    at = 0
    while opening := _OPENING.search(text, at):
        xml = text.startswith("<function=", opening.end())
        call, end = (qwen_xml if xml else hermes).read(text, opening.end())
        closing = re.compile(r"[\s}]*</tool_call>").match(text, end)
        tidy = bool(opening.group()) and closing is not None and "}" not in closing.group()
        at = closing.end() if closing else end
        stray = _stray(text, at) if closing is None and opening.group() else ""
        if stray and call.error is None:
            call = call.model_copy(update={"error": f"unexpected text after the call: {stray!r}"})
        if not tidy or xml is not (form is CallFormat.QWEN_XML):
            call = call.model_copy(update={"repaired": call.error is None})
        calls.append(call)
    return tuple(calls) or hermes.bare(text)


def _stray(text: str, at: int) -> str:
    """What stands between the end of a call and the closing tag that still follows it."""
    closing, opening = text.find(_CLOSE, at), text.find(_OPEN, at)
    if closing < 0 or 0 <= opening < closing:
        return ""
    return text[at:closing].strip()[:40]
