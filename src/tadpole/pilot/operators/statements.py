"""Whole statements: left out, emptied, inverted, or in the wrong order."""

import ast
import itertools
from collections.abc import Iterator

from tadpole.pilot.code import Code, Function
from tadpole.pilot.operators.registry import Splice, blocks, is_elif, operator, swap


def _statements(code: Code, function: Function) -> Iterator[tuple[ast.stmt, Splice]]:
    """Each statement on lines of its own, with the splice that takes it out."""
    for _, _, block in blocks(function):
        for node in block:
            lines = code.whole_lines(node)
            if lines is None or is_elif(code, node):
                continue
            start, end = lines
            text = ""
            if len(block) == 1:
                indent = code.text[start : code.span(node)[0]]
                text = f"{indent}pass{code.ending(node.end_lineno or node.lineno)}"
            yield node, Splice(start, end, text, node)


def _removed(
    code: Code, function: Function, kinds: type[ast.stmt] | tuple[type[ast.stmt], ...]
) -> Iterator[Splice]:
    for node, splice in _statements(code, function):
        if isinstance(node, kinds):
            yield splice


@operator("A case is not handled: a conditional block is missing.", inline=False, worth=0.69)
def remove_cond(code: Code, function: Function) -> Iterator[Splice]:
    """Take out a whole ``if`` statement."""
    yield from _removed(code, function, ast.If)


@operator("A loop is missing.", inline=False, worth=0.72)
def remove_loop(code: Code, function: Function) -> Iterator[Splice]:
    """Take out a whole loop."""
    yield from _removed(code, function, (ast.For, ast.AsyncFor, ast.While))


@operator("An assignment is missing.", inline=False, worth=0.79)
def remove_assign(code: Code, function: Function) -> Iterator[Splice]:
    """Take out an assignment."""
    yield from _removed(code, function, (ast.Assign, ast.AugAssign))


@operator("A call is missing.", inline=False, worth=0.86)
def remove_call(code: Code, function: Function) -> Iterator[Splice]:
    """Take out a call that stands as a statement."""
    for node, splice in _statements(code, function):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Await):
            value = value.value
        if isinstance(value, ast.Call):
            yield splice


@operator("A `with` or `try` block is missing with all it holds.", inline=False, worth=0.89)
def remove_wrapper(code: Code, function: Function) -> Iterator[Splice]:
    """Take out a ``with`` or ``try`` statement, its body included."""
    yield from _removed(code, function, (ast.With, ast.AsyncWith, ast.Try))


@operator("An exception is not raised.", inline=False)
def remove_raise(code: Code, function: Function) -> Iterator[Splice]:
    """Take out a ``raise`` statement."""
    yield from _removed(code, function, ast.Raise)


@operator("A function gives back `None` where it should give a value.", worth=0.69)
def return_none(code: Code, function: Function) -> Iterator[Splice]:
    """``return x`` becomes ``return None``."""
    for top in function.body:
        for node in ast.walk(top):
            if not isinstance(node, ast.Return) or node.value is None:
                continue
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                yield Splice(*code.span(node), "return None", node)


@operator("The two branches of a condition are exchanged.", inline=False, worth=0.78)
def invert_if(code: Code, function: Function) -> Iterator[Splice]:
    """Exchange the bodies of ``if`` and ``else`` (not of ``elif`` chains)."""
    for top in function.body:
        for node in ast.walk(top):
            if not isinstance(node, ast.If) or not node.orelse or is_elif(code, node):
                continue
            if is_elif(code, node.orelse[0]):
                continue
            spans = []
            for block in (node.body, node.orelse):
                first, last = code.whole_lines(block[0]), code.whole_lines(block[-1])
                if first is not None and last is not None:
                    spans.append((first[0], last[1]))
            if len(spans) == 2 and spans[0][1] <= spans[1][0]:
                found = swap(code, spans[0], spans[1])
                yield Splice(found.start, found.end, found.text, node)


@operator("Two neighbouring statements are in the wrong order.", inline=False, worth=0.34)
def swap_lines(code: Code, function: Function) -> Iterator[Splice]:
    """Exchange two neighbouring simple statements of one block."""
    simple = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr
    for _, _, block in blocks(function):
        for first, second in itertools.pairwise(block):
            if isinstance(first, simple) and isinstance(second, simple):
                one, two = code.whole_lines(first), code.whole_lines(second)
                if one is not None and two is not None and one[1] <= two[0]:
                    found = swap(code, one, two)
                    if code.text[found.start : found.end].endswith(("\n", "\r")):
                        yield Splice(found.start, found.end, found.text, first)


@operator("A loop ends early, or goes on, at the wrong moment.")
def loop_jump(code: Code, function: Function) -> Iterator[Splice]:
    """``break`` becomes ``continue`` and the other way round."""
    for top in function.body:
        for node in ast.walk(top):
            if isinstance(node, ast.Break | ast.Continue):
                start, end = code.span(node)
                text = "continue" if isinstance(node, ast.Break) else "break"
                yield Splice(start, end, text, node)
