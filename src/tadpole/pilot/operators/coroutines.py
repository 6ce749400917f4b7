"""Coroutines."""

import ast
from collections.abc import Iterator

from tadpole.pilot.code import Code, Function
from tadpole.pilot.operators.registry import Splice, expressions, operator


@operator("The result of a coroutine is used without waiting for it.")
def drop_await(code: Code, function: Function) -> Iterator[Splice]:
    """``await a()`` becomes ``a()``."""
    for node in expressions(function):
        if isinstance(node, ast.Await):
            start, end = code.span(node)[0], code.span(node.value)[0]
            if code.text[start:end].strip() == "await":
                yield Splice(start, end, "")


@operator("An error of one of several coroutines is handed back instead of raised.")
def keep_errors(code: Code, function: Function) -> Iterator[Splice]:
    """``gather(a, b)`` becomes ``gather(a, b, return_exceptions=True)``."""
    for node in expressions(function):
        if isinstance(node, ast.Call) and node.args and not node.keywords:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "gather":
                end = code.span(node.args[-1])[1]
                yield Splice(end, end, ", return_exceptions=True")
