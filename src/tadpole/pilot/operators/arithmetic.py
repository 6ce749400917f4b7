"""Arithmetic and constants."""

import ast
from collections.abc import Iterator

from tadpole.pilot.code import Code, Function
from tadpole.pilot.operators.registry import (
    Splice,
    expressions,
    glue,
    operator,
    replace_glue,
    swap,
)

FLIPPED = {
    "+": "-",
    "-": "+",
    "*": "//",
    "/": "*",
    "//": "*",
    "%": "//",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "^": "&",
    "**": "*",
}
ORDERED = {"+", "-", "/", "//", "%", "**", "<<", ">>"}  # the others commute: no bug


def _is_text(node: ast.expr) -> bool:
    constant = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return constant or isinstance(node, ast.JoinedStr)


def _operations(code: Code, function: Function) -> Iterator[tuple[ast.BinOp, str]]:
    for node in expressions(function):
        if isinstance(node, ast.BinOp) and not _is_text(node.left):
            text = glue(code, code.span(node.left)[1], code.span(node.right)[0])
            if text is not None:
                yield node, text


@operator("A calculation uses the wrong operator.", worth=0.86)
def arith_flip(code: Code, function: Function) -> Iterator[Splice]:
    """``a + b`` becomes ``a - b``; text on the left is left alone."""
    for node, text in _operations(code, function):
        if text in FLIPPED and not _is_text(node.right):
            start, end = code.span(node.left)[1], code.span(node.right)[0]
            yield replace_glue(code, start, end, FLIPPED[text])


@operator("The two sides of an operator are in the wrong order.", worth=0.48)
def swap_operands(code: Code, function: Function) -> Iterator[Splice]:
    """``a - b`` becomes ``b - a`` where the order matters."""
    for node, text in _operations(code, function):
        if text in ORDERED and code.segment(node.left) != code.segment(node.right):
            yield swap(code, code.span(node.left), code.span(node.right))


@operator("A value is updated with the wrong operator.")
def aug_flip(code: Code, function: Function) -> Iterator[Splice]:
    """``a += 1`` becomes ``a -= 1``."""
    for top in function.body:
        for node in ast.walk(top):
            if isinstance(node, ast.AugAssign) and not _is_text(node.value):
                start, end = code.span(node.target)[1], code.span(node.value)[0]
                text = glue(code, start, end)
                if text is not None and text.removesuffix("=") in FLIPPED:
                    yield replace_glue(code, start, end, FLIPPED[text.removesuffix("=")] + "=")


@operator("A number is off by one.", worth=0.62)
def const_change(code: Code, function: Function) -> Iterator[Splice]:
    """A decimal integer goes up by one, or down by one where it stays positive."""
    for node in expressions(function):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            start, end = code.span(node)
            if code.text[start:end].isdecimal():
                yield Splice(start, end, str(node.value + 1))
                if node.value > 0:
                    yield Splice(start, end, str(node.value - 1))


@operator("A flag has the wrong value.")
def flag_flip(code: Code, function: Function) -> Iterator[Splice]:
    """``True`` becomes ``False`` and the other way round."""
    for node in expressions(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            start, end = code.span(node)
            yield Splice(start, end, str(not node.value))


@operator("A sign is wrong.")
def drop_minus(code: Code, function: Function) -> Iterator[Splice]:
    """``-a`` becomes ``a``."""
    for node in expressions(function):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            start, end = code.span(node)[0], code.span(node.operand)[0]
            if code.text[start:end] == "-":
                yield Splice(start, end, "")
