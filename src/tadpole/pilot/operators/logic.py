"""Comparisons and boolean logic."""

import ast
import itertools
from collections.abc import Iterator

from tadpole.pilot.code import Code, Function
from tadpole.pilot.operators.registry import Splice, expressions, glue, operator, replace_glue

NEGATED = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
}
BOUNDARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def _comparisons(code: Code, function: Function) -> Iterator[tuple[int, int, str]]:
    for node in expressions(function):
        if isinstance(node, ast.Compare):
            left = node.left
            for right in node.comparators:
                start, end = code.span(left)[1], code.span(right)[0]
                text = glue(code, start, end)
                if text is not None:
                    yield start, end, text
                left = right


@operator("A comparison tests for the opposite of what it should.", worth=0.57)
def cmp_negate(code: Code, function: Function) -> Iterator[Splice]:
    """``a == b`` becomes ``a != b``, ``a < b`` becomes ``a >= b``."""
    for start, end, text in _comparisons(code, function):
        if text in NEGATED:
            yield replace_glue(code, start, end, NEGATED[text])


@operator("A comparison is off at its boundary: equal values are treated wrongly.", worth=0.57)
def cmp_boundary(code: Code, function: Function) -> Iterator[Splice]:
    """``a < b`` becomes ``a <= b``."""
    for start, end, text in _comparisons(code, function):
        if text in BOUNDARY:
            yield replace_glue(code, start, end, BOUNDARY[text])


@operator("Two conditions are joined by the wrong one of `and` and `or`.", worth=0.56)
def bool_flip(code: Code, function: Function) -> Iterator[Splice]:
    """``a and b`` becomes ``a or b`` (two operands only, so that precedence stays readable)."""
    for node in expressions(function):
        if isinstance(node, ast.BoolOp) and len(node.values) == 2:
            start, end = code.span(node.values[0])[1], code.span(node.values[1])[0]
            text = glue(code, start, end)
            if text in ("and", "or"):
                yield replace_glue(code, start, end, "or" if text == "and" else "and")


@operator("A condition misses one of its clauses.", worth=0.64)
def drop_clause(code: Code, function: Function) -> Iterator[Splice]:
    """``a and b`` becomes ``a``, or ``b``."""
    for node in expressions(function):
        if not isinstance(node, ast.BoolOp):
            continue
        spans = [code.span(value) for value in node.values]
        gaps = [glue(code, a[1], b[0]) for a, b in itertools.pairwise(spans)]
        whole = code.span(node) == (spans[0][0], spans[-1][1])
        if whole and all(gap in ("and", "or") for gap in gaps):
            yield Splice(spans[0][0], spans[1][0], "")
            for before, this in itertools.pairwise(spans):
                yield Splice(before[1], this[1], "")


@operator("A condition is inverted: a `not` is missing.", worth=0.86)
def drop_not(code: Code, function: Function) -> Iterator[Splice]:
    """``not a`` becomes ``a``; only where no precedence can shift."""
    for node in expressions(function):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start, end = code.span(node)[0], code.span(node.operand)[0]
            if glue(code, start, end) == "not":
                yield Splice(start, end, "")


@operator("A condition is inverted: there is a `not` too many.")
def add_not(code: Code, function: Function) -> Iterator[Splice]:
    """``if a:`` becomes ``if not a:`` for names, attributes, calls and subscripts."""
    simple = ast.Name | ast.Attribute | ast.Call | ast.Subscript
    for top in function.body:
        for node in ast.walk(top):
            if isinstance(node, ast.If | ast.While | ast.IfExp) and isinstance(node.test, simple):
                start = code.span(node.test)[0]
                yield Splice(start, start, "not ")
