"""``pytest.raises`` and ``self.assertRaises``, as a context manager or as a call."""

import ast
import builtins
import random

from tadpole.grading.oracles.oracle import Draw, Oracle, Splice, Style, Text, lines_of, name_of

_NAMES = {"raises", "assertRaises", "assertRaisesRegex"}
_BROAD = {"Exception", "BaseException"}
# Those that libraries raise, and those that hardly anybody derives from.
_COMMON = ("KeyError", "IndexError", "TypeError", "ValueError", "AttributeError", "OSError")
_RARE = ("ZeroDivisionError", "EOFError", "BufferError", "FloatingPointError")
ANYTHING = b'__import__("pytest").raises(BaseException)'


def expects(node: ast.expr) -> ast.Call | None:
    """The call, where an expression is one that waits for an exception."""
    if isinstance(node, ast.Call) and node.args:
        return node if name_of(node.func) in _NAMES else None
    return None


def read(node: ast.stmt, text: Text) -> Oracle | None:
    """The oracle of a statement that waits for an exception."""
    after: tuple[Splice, ...] = ()
    if isinstance(node, ast.With):
        calls = [call for item in node.items if (call := expects(item.context_expr))]
        if not calls or not text.alone(node):
            return None
        # The outer one sees what the inner one made of it.
        start, last = text.span(node.items[0].context_expr)[0], text.span(node)[1]
        prefix = Splice(start, start, ANYTHING + b", ")
        # What follows may look at the exception that did not come.
        after = (Splice(last, last, b"\n" + text.indent(node) + b"return"),)
    elif isinstance(node, ast.Expr) and (call := expects(node.value)) and text.alone(node):
        if len(call.args) < 2:
            return None
        calls = [call]
        start = text.span(node)[0]
        prefix = Splice(start, start, b"with " + ANYTHING + b": ")
    else:
        return None

    def form(inverted: bool, rng: random.Random) -> list[Splice]:
        return [prefix] if inverted else []

    return Oracle(Style.RAISES, lines_of(node), form, _mutation(calls[0].args[0], text), after)


def _mutation(expected: ast.expr, text: Text) -> Draw | None:
    names = [name_of(part) for part in getattr(expected, "elts", [expected])]
    if not all(names) or set(names) & _BROAD:
        return None
    known = [getattr(builtins, name, None) for name in names]
    others = [
        other
        for other in (*_COMMON, *_RARE)
        if all(kind is not None or other in _RARE for kind in known)
        and not any(isinstance(kind, type) and _related(kind, other) for kind in known)
    ]
    if not others:
        return None
    start, end = text.span(expected)
    return lambda rng: [Splice(start, end, rng.choice(others).encode())]


def _related(kind: type, other: str) -> bool:
    found = getattr(builtins, other)
    return issubclass(kind, found) or issubclass(found, kind)
