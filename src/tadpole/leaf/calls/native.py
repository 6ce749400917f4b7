"""A server's own ``tool_calls``, read as tolerantly as the calls in a text."""

import json
from typing import Any

from tadpole.leaf.calls import hermes
from tadpole.trace import ToolCall


def read(item: Any) -> ToolCall:
    """One entry of a message's ``tool_calls``. Never raises for what it says."""
    entry = item if isinstance(item, dict) else {}
    function, named = entry.get("function"), entry.get("id")
    call_id = hermes.whole(named) if isinstance(named, str) else ""
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return ToolCall(name="", call_id=call_id, error="the call names no function")
    name, given = hermes.whole(function["name"]), function.get("arguments")
    if given in (None, ""):
        return ToolCall(name=name, call_id=call_id)
    if isinstance(given, dict):  # some servers decode it themselves
        if hermes.torn(given):
            return ToolCall(name=name, call_id=call_id, error=hermes.HALF)
        return ToolCall(name=name, call_id=call_id, arguments=given)
    arguments, error, repaired = _arguments(given)
    return ToolCall(name=name, call_id=call_id, arguments=arguments, error=error, repaired=repaired)


def _arguments(given: Any) -> tuple[dict[str, Any], str | None, bool]:
    """``(arguments, error, repaired)`` of the text that stands for them."""
    if not isinstance(given, str):
        return {}, '"arguments" must be a JSON object', False
    try:
        value, end, repaired = hermes.decode(given, len(given) - len(given.lstrip()))
        if isinstance(value, str):  # encoded twice
            value, repaired = json.loads(value), True
    except (json.JSONDecodeError, RecursionError) as error:
        return {}, hermes.describe(error, given), False
    if given[end:].strip():
        more = given[end:].strip()[:40]
        return {}, f"unexpected text after the arguments at column {end + 1}: {more!r}", False
    if not isinstance(value, dict):
        return {}, '"arguments" must be a JSON object', False
    if hermes.torn(value):
        return {}, hermes.HALF, False
    return value, None, repaired
