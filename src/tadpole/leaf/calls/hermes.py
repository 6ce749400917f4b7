"""Hermes: ``{"name": "Read", "arguments": {"file_path": "a.py"}}`` between tags."""

import contextlib
import json
import re
from typing import Any

from tadpole.trace import ToolCall

_NAME = re.compile(r'"name"\s*:\s*"(\w+)"')
_BARE = re.compile(r'\{\s*"(?:name|arguments)"\s*:')
_END = re.compile(r"</?tool_call>|\Z")
_HALF = re.compile("[\ud800-\udfff]")
_DEEPEST = 20  # of what no tool takes anyway; a trace cannot be written at a few hundred


def render(call: ToolCall) -> str:
    """The JSON of a call, on one line."""
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def read(text: str, at: int) -> tuple[ToolCall, int]:
    """The call that begins at ``at``, and where it ends. Never raises for what the text says."""
    fence = re.compile(r"```\w*\s*").match(text, at)
    begin = fence.end() if fence else at
    try:
        value, end, repaired = decode(text, begin)
    except (ValueError, RecursionError) as error:
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
    are taken as meant. Raises ValueError (a JSONDecodeError mostly) or RecursionError."""
    try:
        value, end = json.JSONDecoder().raw_decode(text[begin:])
        return value, begin + end, False
    except json.JSONDecodeError as strict:
        if not strict.msg.startswith("Invalid control character"):
            raise
    value, end = json.JSONDecoder(strict=False).raw_decode(text[begin:])
    return value, begin + end, True


def describe(error: Exception, body: str) -> str:
    """What is wrong with ``body``, and where."""
    if not body.strip():
        return "the call is empty"
    if isinstance(error, RecursionError):
        return "the JSON of the call is nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        return "the JSON of the call has a number with too many digits"
    line = f"line {error.lineno} " if error.lineno > 1 else ""
    doubled = error.doc[error.pos : error.pos + 2] == '\\"'
    why = "the quotes are escaped once too often" if doubled else error.msg
    return f"the call is not valid JSON at {line}column {error.colno}: {why}"


def flaw(value: Any) -> str | None:
    """Why a JSON value cannot be a call's, though it can be read; None where it can.

    JSON may hold half a character (a lone surrogate) and nest without end: neither could be
    kept in a trace or sent to a tool.
    """
    level = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for one in level:
            if isinstance(one, str) and _HALF.search(one):
                return "the call holds half a surrogate pair, which is no text"
            if isinstance(one, dict):
                below += [*one, *one.values()]
            elif isinstance(one, list):
                below += one
        if not below:
            return None
        level = below
    return "the JSON of the call is nested too deeply"


def _call(value: Any) -> ToolCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return ToolCall(name="", error='a call is a JSON object with "name" and "arguments"')
    name, key = value["name"], "arguments" if "arguments" in value else "parameters"
    arguments, repaired = value.get(key), key != "arguments"
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments, repaired = json.loads(arguments), True
    if problem := flaw([name, arguments]):
        return ToolCall(name="" if _HALF.search(name) else name, error=problem)
    if not isinstance(arguments, dict):
        return ToolCall(name=name, error='"arguments" must be a JSON object')
    return ToolCall(name=name, arguments=arguments, repaired=repaired)
