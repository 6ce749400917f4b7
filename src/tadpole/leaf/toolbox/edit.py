"""Edit: a text of a file in the place of another, and no other byte."""

import bisect
import itertools
import re

from . import seen
from .files import BOM, decode, load, resolve
from .storing import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def edit(
    workdir: str, file_path: str, old_string: str, new_string: str, replace_all: bool = False
) -> str:
    """The observation of an Edit. Raises ValueError, OSError; then nothing has changed."""
    real, shown = resolve(workdir, file_path)
    data = load(workdir, real, shown)
    if not old_string:
        raise ValueError("old_string is empty; to replace the whole file use Write")
    if old_string == new_string:
        raise ValueError("old_string and new_string are the same, so nothing would change")
    text, old = decode(data), old_string.replace("\r\n", "\n")
    flat = text.replace("\r\n", "\n")
    found = _positions(flat, old, len(old) if replace_all else 1)
    if not found:
        from . import refusal

        raise ValueError(refusal.why_not(flat, old, shown, seen.texts.get(real, ())))
    if len(found) > 1 and not replace_all:
        lines = [str(flat.count("\n", 0, at) + 1) for at in found[:10]]
        raise ValueError(
            "old_string occurs {} times in {} (lines {}{}); add the lines around the one you mean, "
            "or set replace_all to true".format(
                len(found), shown, ", ".join(lines), ", ..." if len(found) > 10 else ""
            )
        )
    # Positions in `flat` lead back to `text` by the number of CRLF pairs before them.
    pairs = [pair.start() - k for k, pair in enumerate(re.finditer("\r\n", text))]
    pieces, done = [], 0
    for at in found:
        start = at + bisect.bisect_left(pairs, at)
        stop = at + len(old) + bisect.bisect_left(pairs, at + len(old))
        pieces += [text[done:start], _with_endings(new_string, text, start, stop)]
        done = stop
    result = "".join(pieces) + text[done:]
    if result == text:
        raise ValueError(
            "nothing would change: old_string and new_string differ in line endings alone, and "
            f"Edit keeps those of {shown}; to change them use Bash"
        )
    for version in (text, result):
        seen.remember(real, version)
    bom = BOM if data.startswith(BOM) else b""
    store(real, bom + result.encode("utf-8", "surrogateescape"))
    plural = "" if len(found) == 1 else "s"
    return f"Edited {shown} ({len(found)} replacement{plural})."


def _positions(text: str, part: str, step: int) -> "list[int]":
    found, at = [], text.find(part)
    while at >= 0:
        found.append(at)
        at = text.find(part, at + step)
    return found


def _with_endings(new: str, text: str, start: int, stop: int) -> str:
    """``new`` with the line endings of what it replaces, else those of the lines around."""
    endings = re.findall("\r?\n", text[start:stop])
    if not endings:
        near = re.compile("\r?\n").search(text, stop)
        endings = [near.group()] if near else re.findall("\r?\n", text[:start])[-1:] or ["\n"]
    count = itertools.count()

    def ending(match: "Any") -> str:
        own = str(endings[min(next(count), len(endings) - 1)])
        return own if match.group() == "\n" else str(match.group())

    return re.sub("\r?\n", ending, new)
