"""What a check compares with, and something else in its place.

A literal gives a literal of the same shape with one constant changed; anything else gives way
to a number or a text that a program hardly computes by chance (about one in 50,000).
"""

import ast
import random
from collections.abc import Sequence

from tadpole.grading.oracles.oracle import Draw, Splice, Text, name_of
from tadpole.syntax import expression

_SINGLETONS = (None, True, False)
_TRIES = 20


def mutation(operands: Sequence[ast.expr], text: Text) -> Draw | None:
    """How to replace the expected one of two operands; None where neither can be."""
    expected = _expected(operands)
    if expected is None:
        return None
    start, end = text.span(expected)

    return lambda rng: [Splice(start, end, _other(expected, text, rng))]


def singleton(node: ast.expr, text: Text) -> Draw | None:
    """For ``is``: another one of None, True and False."""
    if not isinstance(node, ast.Constant) or not any(node.value is one for one in _SINGLETONS):
        return None
    start, end = text.span(node)
    others = [repr(one).encode() for one in _SINGLETONS if one is not node.value]
    return lambda rng: [Splice(start, end, rng.choice(others))]


def _expected(operands: Sequence[ast.expr]) -> ast.expr | None:
    """The literal one, else the one that calls nothing, else the second."""
    first, second = operands
    if _is_literal(second):
        return None if _is_literal(first) else second  # two literals test nothing
    if _is_literal(first):
        return first
    for test in (_is_approx, lambda node: not _calls(node)):
        for node in (second, first):
            if test(node):
                return node
    return second


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_approx(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and name_of(node.func) == "approx"
        and bool(node.args)
        and _is_literal(node.args[0])
    )


def _calls(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _other(node: ast.expr, text: Text, rng: random.Random) -> bytes:
    if _is_literal(node):
        return _other_literal(node, text, rng)
    if isinstance(node, ast.Call) and _is_approx(node):
        start = text.span(node)[0]
        inner = text.span(node.args[0])
        whole = text.of(node)
        changed = _other_literal(node.args[0], text, rng)
        return whole[: inner[0] - start] + changed + whole[inner[1] - start :]
    return stranger(text, rng)


def _other_literal(node: ast.expr, text: Text, rng: random.Random) -> bytes:
    """The literal with one constant changed, so that it is not equal to what it was."""
    value, whole, start = ast.literal_eval(node), text.of(node), text.span(node)[0]
    constants = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
    for _ in range(_TRIES if constants else 0):
        part = rng.choice(constants)
        at, end = text.span(part)
        new = _other_constant(part.value, text, rng).encode()
        changed = whole[: at - start] + new + whole[end - start :]
        try:
            if not _like(ast.literal_eval(expression(changed.decode("utf-8").strip())), value):
                return changed
        except (ValueError, TypeError):
            continue
    return stranger(text, rng)


def _like(one: object, other: object) -> bool:
    """Equal, or near enough that a tolerance could make it so."""
    if isinstance(one, float) and isinstance(other, float | int):
        return abs(one - other) <= 1 + 0.5 * abs(other)
    return one == other


def _other_constant(value: object, text: Text, rng: random.Random) -> str:
    if isinstance(value, bool) or value is None:
        return repr(rng.choice([one for one in _SINGLETONS if one is not value]))
    if isinstance(value, int):
        return repr(value + rng.choice([1, 2, 3, 4, 5, 7, 10]))
    if isinstance(value, float):
        return repr(round(value * rng.choice([3.0, 4.0, 5.0]) + rng.choice([2.0, 3.0, 7.0]), 4))
    if isinstance(value, complex):
        return repr(value + rng.choice([1, 2, 3]))
    if isinstance(value, str):
        return repr(_other_word(value, text, rng))
    if isinstance(value, bytes):
        return repr(_other_word(value.decode("latin-1"), text, rng).encode("latin-1", "replace"))
    return stranger(text, rng).decode()


def _other_word(value: str, text: Text, rng: random.Random) -> str:
    letters = [at for at, sign in enumerate(value) if sign.isascii() and sign.isalnum()]
    if not letters:
        return value + rng.choice(text.words)
    at = rng.choice(letters)
    pool = "0123456789" if value[at].isdigit() else "abcdefghiklmnoprstuw"
    return value[:at] + rng.choice([sign for sign in pool if sign != value[at]]) + value[at + 1 :]


def stranger(text: Text, rng: random.Random) -> bytes:
    """A literal that has nothing to do with what stood there."""
    if rng.random() < 0.5:
        return repr(rng.randrange(1000, 99_999)).encode()
    words = [rng.choice(text.words) for _ in range(3)]
    return repr("-".join(words)).encode()
