"""One Python source file with exact positions: syntax tree, tokens and character offsets.

Offsets count characters of the decoded text and line endings stay as they are in the file, so
that a splice changes nothing but its own span. Python's own line rule is used (LF, CRLF and
CR end a line; form feeds and Unicode separators do not), because tree positions follow it.
"""

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from tadpole import syntax
from tadpole.textfile import TextFile

LINE_END = re.compile(r"\r\n|\r|\n")
# A docstring of one line that only notes that it is to be written.
_PLACEHOLDER = re.compile(
    r"\W*((to-?do|fixme|xxx|tbd|undocumented)\b.*"
    r"|((no|missing)\s+doc(string|umentation)?|document\s+(me|this))\W*)",
    re.IGNORECASE,
)
Routine = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Token:
    """A token with its character span."""

    text: str
    kind: int
    start: int
    end: int


@dataclass(frozen=True)
class Function:
    """An outermost function or method and its statements without the docstring."""

    name: str  # qualified inside its file
    node: Routine
    body: tuple[ast.stmt, ...]
    docstring: str  # as said() has it

    @property
    def lines(self) -> range:
        """Its lines in the file, decorators included."""
        first = min((one.lineno for one in self.node.decorator_list), default=self.node.lineno)
        return range(first, (self.node.end_lineno or self.node.lineno) + 1)


class Code:
    """A parsed file. Raises ValueError where it has no tree."""

    def __init__(self, path: str, file: TextFile) -> None:
        self.path = path
        self.file = file
        self.text = file.text
        self.starts = [0, *(match.end() for match in LINE_END.finditer(self.text))]
        if self.starts[-1] < len(self.text):
            self.starts.append(len(self.text))
        self.tree = parse(self.text)

    @classmethod
    def decode(cls, path: str, content: bytes) -> Self:
        """Read the bytes of a file. Raises ValueError where they are no Python."""
        return cls(path, TextFile.decode(content))

    def encode(self, text: str) -> bytes:
        """The bytes of the same file with another text."""
        return self.file.with_text(text).encode()

    @property
    def line_count(self) -> int:
        """Number of lines, a last one without an ending included."""
        return len(self.starts) - 1

    def line(self, number: int) -> str:
        """A line with its ending, 1-based."""
        return self.text[self.starts[number - 1] : self.starts[number]]

    def line_of(self, offset: int) -> int:
        """The 1-based line that holds a character."""
        return min(bisect_right(self.starts, offset), max(1, self.line_count))

    def at(self, line: int, column: int) -> int:
        """The character offset of a tree position (1-based line, UTF-8 byte column)."""
        text = self.line(line)
        if text.isascii():
            return self.starts[line - 1] + column
        return self.starts[line - 1] + len(text.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """First and one-past-last character of a node, without parentheses around it."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def whole_lines(self, node: ast.stmt) -> tuple[int, int] | None:
        """The span of the lines of a statement; None where it shares them with another."""
        start, end = self.span(node)
        first, after = self.starts[node.lineno - 1], self.starts[node.end_lineno or node.lineno]
        tail = self.text[end:after].strip()
        if self.text[first:start].strip() or (tail and not tail.startswith("#")):
            return None
        return first, after

    def ending(self, line: int) -> str:
        """The line ending in use at a line."""
        match = LINE_END.search(self.line(line))
        return match.group() if match else "\n"

    @cached_property
    def tokens(self) -> list[Token]:
        """All tokens with text, in order."""
        found = []
        for token in tokenize.generate_tokens(io.StringIO(self.text, newline="").readline):
            if token.string.strip():
                start, end = (self._offset(*place) for place in (token.start, token.end))
                found.append(Token(token.string, token.type, start, end))
        return found

    def _offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def between(self, start: int, end: int) -> list[Token]:
        """The tokens inside a span, comments left out."""
        low = bisect_right(self.tokens, start - 1, key=lambda token: token.start)
        found = []
        for token in self.tokens[low:]:
            if token.start >= end:
                break
            if token.kind != tokenize.COMMENT:
                found.append(token)
        return found

    @cached_property
    def dump(self) -> str:
        """The tree without positions: equal for files that mean the same."""
        return ast.dump(self.tree)

    @cached_property
    def functions(self) -> list[Function]:
        """Outermost functions and methods in file order; TYPE_CHECKING blocks left out."""
        return list(_functions(self.tree.body, ""))


def one_line(text: str) -> bool:
    """Whether a text holds no line ending."""
    return "\n" not in text and "\r" not in text


def parse(text: str) -> ast.Module:
    """The tree of a source text, compiled once so that late syntax errors show too.

    Raises ValueError for text that is no Python, null bytes included.
    """
    try:
        tree = syntax.parse(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<candidate>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"not Python: {error}") from error
    return tree


def said(node: Routine | ast.ClassDef) -> str:
    """The docstring, where it is more than a note that one is missing; else empty."""
    docstring = ast.get_docstring(node) or ""
    return "" if _PLACEHOLDER.fullmatch(docstring) else docstring


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[Function]:
    for node in body:
        if isinstance(node, Routine):
            docstring = said(node)
            rest = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            yield Function(prefix + node.name, node, tuple(rest), docstring)
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If):
            if not _type_checking(node.test):
                yield from _functions(node.body, prefix)
            yield from _functions(node.orelse, prefix)
        elif isinstance(node, ast.Try):
            for block in (node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody):
                yield from _functions(block, prefix)
        elif isinstance(node, ast.With):
            yield from _functions(node.body, prefix)


def _type_checking(test: ast.expr) -> bool:
    """Whether a condition holds for type checkers only (``not TYPE_CHECKING`` does not)."""
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"
