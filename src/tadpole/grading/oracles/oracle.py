"""What an oracle is, and the source text that it is spliced into. Offsets count bytes."""

import ast
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from tadpole.syntax import parse

_LINE_END = re.compile(rb"\r\n|\r|\n")


class Style(StrEnum):
    """How a check is written."""

    ASSERT = "assert"
    UNITTEST = "unittest"
    RAISES = "raises"
    CALL = "call"  # numpy.testing, pandas.testing, and other functions named assert_...


@dataclass(frozen=True)
class Splice:
    """Replace the bytes ``start:end`` by ``text``."""

    start: int
    end: int
    text: bytes


Draw = Callable[[random.Random], list[Splice]]


@dataclass(frozen=True)
class Oracle:
    """One rewritable check.

    ``form`` gives the splices of the plain (False) or the inverted (True) check; ``mutate``
    those that compare with something else, None where there is nothing to compare with;
    ``after`` those that are needed where both are done.
    """

    style: Style
    lines: range  # of its statement
    form: Callable[[bool, random.Random], list[Splice]]
    mutate: Draw | None = None
    after: tuple[Splice, ...] = field(default=())

    def splices(self, mutated: bool, inverted: bool, rng: random.Random) -> list[Splice]:
        """What to change. Under a right program it then holds where mutated == inverted."""
        found = self.form(inverted, rng)
        if mutated:
            assert self.mutate is not None
            found = [*found, *self.mutate(rng), *(self.after if inverted else ())]
        return found


class Text:
    """A test file. Raises ValueError where it is no Python in UTF-8."""

    def __init__(self, content: bytes) -> None:
        content.decode("utf-8")
        self.content = content
        self.starts = [0, *(match.end() for match in _LINE_END.finditer(content))]
        self.tree = parse(content)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First and one-past-last byte of a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        return self.starts[node.lineno - 1] + node.col_offset, end

    def of(self, node: ast.expr) -> bytes:
        """The source of an expression."""
        start, end = self.span(node)
        return self.content[start:end]

    def indent(self, node: ast.stmt) -> bytes:
        """What stands before a statement on its line."""
        start = self.starts[node.lineno - 1]
        return self.content[start : start + node.col_offset]

    def alone(self, node: ast.stmt) -> bool:
        """Whether a statement has nothing before it on its line."""
        return not self.indent(node).strip()

    @cached_property
    def words(self) -> list[str]:
        """Words of the file, for values that look like its own."""
        return sorted(set(re.findall(r"\b[a-z]{3,9}\b", self.content.decode("utf-8")))) or ["value"]


def lines_of(node: ast.stmt) -> range:
    """The lines of a statement."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def name_of(node: ast.expr) -> str:
    """The last name of ``a.b.name`` or ``name``; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else str(getattr(node, "id", ""))


def spliced(content: bytes, splices: Iterable[Splice]) -> bytes:
    """The text with all splices made; they must not overlap."""
    parts, at = [], 0
    for splice in sorted(splices, key=lambda one: (one.start, one.end)):
        assert splice.start >= at, "splices overlap"
        parts += [content[at : splice.start], splice.text]
        at = splice.end
    return b"".join([*parts, content[at:]])
