"""Hermes: ``{"name": "Read", "arguments": {"file_path": "a.py"}}`` between tags."""

import contextlib
import json
import re
from typing import Any

from tadpole.trace import ToolCall

_NAME = re.compile(r'"name"\s*:\s*"(\w+)"')
_BARE = re.compile(r'\{\s*"(?:name|arguments)"\s*:')
HALF = "the call holds half a surrogate pair, which is no text: write the character itself"
_END = re.compile(r"</?tool_call>|\Z")


def render(call: ToolCall) -> str:
    """The JSON of a call, on one line."""
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def read(text: str, at: int) -> tuple[ToolCall, int]:
    """The call that begins at ``at``, and where it ends. Never raises for what the text says."""
    fence = re.compile(r"```\w*\s*").match(text, at)
    begin = fence.end() if fence else at
    try:
        value, end, repaired = decode(text, begin)
    except (json.JSONDecodeError, RecursionError) as error:
        stop = _END.search(text, begin)
        end = stop.start() if stop else len(text)
        name = _NAME.search(text, begin, end)
        problem = describe(error, text[begin:end])
        return ToolCall(name=name.group(1) if name else "", error=problem), end
    call = _call(value)
    closing = re.compile(r"\s*```").match(text, end) if fence else None
    repaired = (repaired or fence is not None or call.repaired) and call.error is None
    return call.model_copy(update={"repaired": repaired}), closing.end() if closing else end


def bare(text: str) -> tuple[ToolCall, ...]:
    """Calls without tags, plain or in a fenced block: some models write no others.

    JSON that is not a call (no "name" and "arguments") is left alone.
    """
    calls: list[ToolCall] = []
    at = 0
    while found := _BARE.search(text, at):
        call, end = read(text, found.start())
        alone = not re.sub(r"```\w*", "", text[: found.start()]).strip()
        rest = text[found.start() : end]
        if call.error is None or ("arguments" in rest and _NAME.search(rest)):
            calls.append(call.model_copy(update={"repaired": call.error is None}))
        elif alone and not calls and end == len(text):
            calls.append(call)
        at = max(end, found.end())
    return tuple(calls)


def decode(text: str, begin: int) -> tuple[Any, int, bool]:
    """``(value, where it ends, repaired)`` of the JSON at ``begin``: bare line breaks in strings
    are taken as meant. Raises JSONDecodeError or RecursionError."""
    try:
        value, end = json.JSONDecoder().raw_decode(text[begin:])
        return value, begin + end, False
    except json.JSONDecodeError as strict:
        if not strict.msg.startswith("Invalid control character"):
            raise
    value, end = json.JSONDecoder(strict=False).raw_decode(text[begin:])
    return value, begin + end, True


def torn(value: Any) -> bool:
    """Whether JSON holds half a surrogate pair: no file, process or record takes one."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):  # the latter: nor one that is nested so deeply
        return True
    return False


def whole(text: str) -> str:
    """``text`` with a replacement character for each half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def describe(error: Exception, body: str) -> str:
    """What is wrong with ``body``, and where."""
    if not body.strip():
        return "the call is empty"
    if not isinstance(error, json.JSONDecodeError):
        return "the JSON of the call is nested too deeply"
    line = f"line {error.lineno} " if error.lineno > 1 else ""
    doubled = error.doc[error.pos : error.pos + 2] == '\\"'
    why = "the quotes are escaped once too often" if doubled else error.msg
    return f"the call is not valid JSON at {line}column {error.colno}: {why}"


def _call(value: Any) -> ToolCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return ToolCall(name="", error='a call is a JSON object with "name" and "arguments"')
    if torn(value):
        return ToolCall(name=whole(value["name"]), error=HALF)
    name, key = value["name"], "arguments" if "arguments" in value else "parameters"
    arguments, repaired = value.get(key), key != "arguments"
    if isinstance(arguments, str):
        with contextlib.suppress(json.JSONDecodeError, RecursionError):
            arguments, repaired = json.loads(arguments), True
            if torn(arguments):
                return ToolCall(name=name, error=HALF)
    if not isinstance(arguments, dict):
        return ToolCall(name=name, error='"arguments" must be a JSON object')
    return ToolCall(name=name, arguments=arguments, repaired=repaired)
