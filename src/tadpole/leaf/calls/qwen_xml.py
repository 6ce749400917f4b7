"""Qwen XML: ``<function=Read><parameter=file_path>a.py</parameter></function>``.

Values are text as it stands, one line break at either end not counted; the tools turn it into
numbers and truth values.
"""

import json
import re

from tadpole.trace import ToolCall

_FUNCTION = re.compile(r"<function=([^<>\n]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]*)>\n?")
# A closing tag counts where the next tag (or the end) follows: values may quote these tags.
_CLOSED = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>|</tool_call>|\Z))")
# What ends a value that has no closing tag: a parameter on a line of its own, the call's own end.
_NEXT = re.compile(r"<parameter=|</function>\s*(?:</?tool_call>|<function=|\Z)")
_FOLLOWING = re.compile(r"<tool_call>\s*<function=")
_END = re.compile(r"\s*</function>")


def render(call: ToolCall) -> str:
    """The XML of a call."""
    lines = [f"<function={call.name}>"]
    for key, value in call.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"<parameter={key}>", text, "</parameter>"]
    return "\n".join([*lines, "</function>"])


def read(text: str, at: int) -> tuple[ToolCall, int]:
    """The call that begins at ``at``, and where it ends. Never raises for what the text says."""
    function = _FUNCTION.match(text, at)
    if not function:
        error = f"the <function=NAME> tag at {_place(text, at, at)} is not closed"
        return ToolCall(name="", error=error), _skip(text, at)
    name, end, repaired = function.group(1).strip(), function.end(), False
    arguments: dict[str, str] = {}
    following = _FOLLOWING.search(text, end)
    limit = _trimmed(text, following.start(), end) if following else len(text)

    def broken(error: str) -> tuple[ToolCall, int]:
        return ToolCall(name=name, error=error), _skip(text, end)

    while parameter := _PARAMETER.match(text, end):
        key = parameter.group(1).strip()
        tag = _CLOSED.search(text, parameter.end(), limit)
        closed = tag.span() if tag else (len(text) + 1, 0)
        unclosed = _unclosed(text, parameter.end(), limit)
        if unclosed is not None and unclosed < closed[0]:
            closed, repaired = (unclosed, unclosed), True
        where = _place(text, at, text.index("<", parameter.start()))
        if closed[0] > len(text):
            return broken(f"parameter {key[:60]} at {where} is not closed with </parameter>")
        if key in arguments:
            return broken(f"parameter {key[:60]} is given twice, again at {where}")
        arguments[key] = text[parameter.end() : closed[0]]
        end = closed[1]
    finish = _END.match(text, end)
    if finish:
        return ToolCall(name=name, arguments=arguments, repaired=repaired), finish.end()
    rest = text[end : _skip(text, end)].strip()
    if rest or not arguments:
        skipped = len(text[end:]) - len(text[end:].lstrip())
        where = _place(text, at, end + skipped if rest else end)
        return broken(f"expected <parameter=KEY> or </function> at {where}, found {rest[:40]!r}")
    return ToolCall(name=name, arguments=arguments, repaired=True), end


def _unclosed(text: str, begin: int, limit: int) -> int | None:
    """Where a value ends that was not closed; None where nothing says so before ``limit``."""
    for found in _NEXT.finditer(text, begin, limit):
        blank = _trimmed(text, found.start(), begin)
        if found.group() != "<parameter=":
            return found.start() - (text[begin : found.start()].endswith("\n"))
        line = text.find("\n", blank, found.start())
        if line >= 0:
            return line
    return None


def _trimmed(text: str, at: int, begin: int) -> int:
    """Where the white space before ``at`` begins, not before ``begin``. (A pattern that begins
    with ``\\s*`` would try every place of a long stretch of it.)"""
    while at > begin and text[at - 1].isspace():
        at -= 1
    return at


def _place(text: str, begin: int, at: int) -> str:
    """Where ``at`` is in a call that begins at ``begin``, as JSON's errors say it."""
    before = text[begin:at]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"column {column}" if line == 1 else f"line {line} column {column}"


def _skip(text: str, at: int) -> int:
    """Where the next call or the end of this one is, after an error."""
    found = re.compile(r"</?tool_call>|<function=|\Z").search(text, at + 1)
    return found.start() if found else len(text)
