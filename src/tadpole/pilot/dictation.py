"""The shortest unique text in which the repair of a site can be dictated.

A dictated edit is taken from the buggy file: replacing its one occurrence of ``old`` by ``new``
gives exactly the pristine file.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tadpole.pilot.candidate import Site
from tadpole.pilot.code import Code, one_line

SHORTEST = 8  # characters: less than that is hard to recognise in a file
MOST_LINES = 12  # of context around a site; more is no dictation any more


@dataclass(frozen=True)
class Dictated:
    """Replace ``old`` by ``new`` in ``path``; line endings as in the file."""

    path: str
    old: str
    new: str

    @property
    def longest(self) -> int:
        """Characters of the longer text."""
        return max(len(self.old), len(self.new))

    @property
    def plain(self) -> bool:
        """One line each, and nothing that a JSON string or a code span would have to escape."""
        text = self.old + self.new
        return one_line(text) and text.isascii() and not set(text) & set('"\\`\t')


def dictate(pristine: Code, site: Site) -> Dictated | None:
    """Find the text; None where even a dozen lines around the site are not unique."""
    buggy = with_bug(pristine.text, site)
    code = Code(site.path, pristine.file.with_text(buggy))
    start, end, good = _trim(site.offset, site.new, site.old)
    spans = sorted(set(_inline(code, start, end)), key=lambda span: span[1] - span[0])
    for first, last in [*spans, *_lines(code, start, end)]:
        old = buggy[first:last]
        if len(old) >= SHORTEST and _once(buggy, old):
            return Dictated(site.path, old, buggy[first:start] + good + buggy[end:last])
    return None


def with_bug(pristine: str, site: Site) -> str:
    """The text of a file with one site changed."""
    return pristine[: site.offset] + site.new + pristine[site.offset + len(site.old) :]


def _trim(offset: int, bad: str, good: str) -> tuple[int, int, str]:
    """Leave out what both texts begin and end with."""
    head = 0
    while head < min(len(bad), len(good)) and bad[head] == good[head]:
        head += 1
    bad, good = bad[head:], good[head:]
    tail = 0
    while tail < min(len(bad), len(good)) and bad[-1 - tail] == good[-1 - tail]:
        tail += 1
    cut = len(bad) - tail
    return offset + head, offset + head + cut, good[: len(good) - tail]


def _once(text: str, part: str) -> bool:
    at = text.find(part)
    return at >= 0 and text.find(part, at + 1) < 0


def _inline(code: Code, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans inside one line: expressions and statements around the site, and the whole line."""
    line = code.line_of(start)
    if one_line(code.text[start:end]) and end <= code.starts[line]:
        content = _content(code, line, line)
        if content[0] <= start and end <= content[1]:
            yield content
    for node in ast.walk(code.tree):
        if not isinstance(node, ast.expr | ast.stmt) or node.lineno > line:
            continue
        if node.lineno == node.end_lineno == line:
            first, last = code.span(node)
            if first <= start and end <= last:
                yield first, last


def _lines(code: Code, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Whole lines around the site, more and more of them: one up, one down, one up...

    Several lines begin with their indentation, so that the block reads as it stands there.
    """
    top, bottom = code.line_of(start), code.line_of(max(start, end - 1))
    up = True
    while bottom - top < MOST_LINES:
        first, last = _content(code, top, bottom)
        first = first if top == bottom else code.starts[top - 1]
        if first <= start and end <= last:
            yield first, last
        grow_up, grow_down = top > 1, bottom < code.line_count
        if not grow_up and not grow_down:
            return
        if grow_up and (up or not grow_down):
            top -= 1
        else:
            bottom += 1
        up = not up


def _content(code: Code, top: int, bottom: int) -> tuple[int, int]:
    """From the first character of a line that is no blank to the last one of another line."""
    first, last = code.starts[top - 1], code.starts[bottom]
    text = code.text[first:last]
    return first + len(text) - len(text.lstrip()), first + len(text.rstrip())
