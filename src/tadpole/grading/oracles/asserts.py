"""``assert``: comparisons (``pytest.approx`` among them) and plain truth."""

import ast
import random

from tadpole.grading.oracles.expected import mutation, singleton
from tadpole.grading.oracles.oracle import Draw, Oracle, Splice, Style, Text, lines_of


def read(node: ast.stmt, text: Text) -> Oracle | None:
    """The oracle of an assert statement."""
    if not isinstance(node, ast.Assert) or any(
        isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node)
    ):
        return None
    test = node.test
    start, end = text.span(test)
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    mutate = None if negated else _mutation(test, text)

    def form(inverted: bool, rng: random.Random) -> list[Splice]:
        if isinstance(test, ast.UnaryOp) and negated:
            # Written so that nobody sees whether it was ``assert x`` or ``assert not x``.
            return [Splice(start, end, _truth(text.of(test.operand), inverted, rng))]
        if mutate is None:
            return [Splice(start, end, _truth(text.of(test), not inverted, rng))]
        ending = b") is %r" % (not inverted)
        return [Splice(start, start, b"bool("), Splice(end, end, ending)]

    return Oracle(Style.ASSERT, lines_of(node), form, mutate)


def _truth(source: bytes, wanted: bool, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return b"bool(not (%s)) is %r" % (source, not wanted)
    return b"bool((%s)) is %r" % (source, wanted)


def _mutation(test: ast.expr, text: Text) -> Draw | None:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return next((found for part in test.values if (found := _mutation(part, text))), None)
    if not isinstance(test, ast.Compare):
        return None
    last = test.comparators[-1]
    if isinstance(test.ops[-1], ast.Is):
        return singleton(last, text)
    if not all(isinstance(op, ast.Eq) for op in test.ops):
        return None
    return mutation([[test.left, *test.comparators][-2], last], text)
