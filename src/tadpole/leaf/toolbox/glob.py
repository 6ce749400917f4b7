"""Glob: the files that fit a pattern."""

import itertools
import os
import re

from .arguments import room
from .files import resolve, visible
from .tree import files_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

GLOB_FILES = 1000


def glob(workdir: str, pattern: str, path: str = ".", max_chars: int = 0) -> str:
    """The observation of a Glob. Raises ValueError, OSError."""
    segments = [part for part in os.path.expanduser(pattern).split("/") if part not in ("", ".")]
    base = "/" if pattern.startswith("/") else path
    # Leading parts that exist as they are written are taken so, brackets and all.
    while len(segments) > 1 and os.path.isdir(os.path.join(workdir, base, segments[0])):
        base = os.path.join(base, segments.pop(0))
    real, shown = resolve(workdir, base)
    if not os.path.isdir(real):
        raise NotADirectoryError(f"{shown} is not a directory")
    if len(segments) == 1 and os.path.isfile(os.path.join(real, segments[0])):
        found = list(segments)
    else:
        depth = None if "**" in segments else len(segments)
        try:
            match = re.compile(_regex(segments) + r"\Z", re.DOTALL).match
        except re.error as error:
            raise ValueError(f"the pattern cannot be read: {error}") from None
        found = [name for name in files_below(real, depth) if match(name)]
    names = sorted(name if shown == "." else os.path.join(shown, name) for name in found)
    lengths = itertools.accumulate(len(name) + 1 for name in names)
    fitting = sum(1 for end in lengths if not max_chars or end <= room(end, max_chars))
    more = len(names) - min(GLOB_FILES, fitting)
    if more > 0:
        names = [*names[: len(names) - more], f"... {more} more files"]
    return "\n".join(map(_named, names)) or "No files matched."


def _named(name: str) -> str:
    """A path on one line, whatever is in it."""
    return re.sub("[\x00-\x1f\x7f]", lambda char: f"\\x{ord(char.group()):02x}", visible(name))


def _regex(segments: "Sequence[str]") -> str:
    parts: list[str] = []
    for k, segment in enumerate(segments):
        if segment == "**":
            if segments[k + 1 : k + 2] == ["**"]:
                continue
            parts.append(".+" if k == len(segments) - 1 else "(?:[^/]+/)*")
            continue
        tokens = re.findall(
            r"\[!?\]?[^\]/]*\]|\{[^{}/]*,[^{}/]*\}|.", re.sub(r"\*+", "*", segment), re.DOTALL
        )
        one = "".join(_token(token) for token in tokens)
        parts.append(one if k == len(segments) - 1 else one + "/")
    return "".join(parts)


def _token(token: str) -> str:
    if token in ("*", "?"):
        return "[^/]*" if token == "*" else "[^/]"
    if token[0] == "{" and len(token) > 1:
        return "(?:" + "|".join(_regex([part]) for part in token[1:-1].split(",")) + ")"
    if token[0] == "[" and len(token) > 2:
        body = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return "[" + ("^" + body[1:] if body[0] == "!" else body) + "]"
    return re.escape(token)
