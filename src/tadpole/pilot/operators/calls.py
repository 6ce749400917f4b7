"""Calls, their arguments, and subscripts."""

import ast
import itertools
from collections.abc import Iterator

from tadpole.pilot.code import Code, Function
from tadpole.pilot.operators.registry import Splice, expressions, glue, operator, swap

TWINS = {
    "min": "max",
    "any": "all",
    "startswith": "endswith",
    "lstrip": "rstrip",
    "lower": "upper",
    "partition": "rpartition",
    "find": "rfind",
    "split": "rsplit",
    "append": "extend",
    "floor": "ceil",
    "popleft": "pop",
    "appendleft": "append",
    "keys": "values",
    "bisect_left": "bisect_right",
}
TWINS = {**{other: name for name, other in TWINS.items()}, **TWINS}


@operator("A call gets its arguments in the wrong order.", worth=0.72)
def swap_args(code: Code, function: Function) -> Iterator[Splice]:
    """``f(a, b)`` becomes ``f(b, a)``."""
    for node in expressions(function):
        if isinstance(node, ast.Call) and len(node.args) >= 2:
            first, second = node.args[:2]
            if isinstance(first, ast.Starred) or isinstance(second, ast.Starred):
                continue
            one, two = code.span(first), code.span(second)
            if glue(code, one[1], two[0]) == "," and code.segment(first) != code.segment(second):
                yield swap(code, one, two)


@operator("A call misses a keyword argument.", worth=0.59)
def drop_kwarg(code: Code, function: Function) -> Iterator[Splice]:
    """``f(a, key=b)`` becomes ``f(a)``."""
    for node in expressions(function):
        if not isinstance(node, ast.Call):
            continue
        parts: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
        parts.sort(key=lambda part: code.span(part)[0])
        for before, this in itertools.pairwise(parts):
            if isinstance(this, ast.keyword) and this.arg is not None:
                start, end = code.span(before)[1], code.span(this)[1]
                if glue(code, start, code.span(this)[0]) == ",":
                    yield Splice(start, end, "")


@operator("A slice is not cut where it should be.", worth=0.83)
def slice_drop(code: Code, function: Function) -> Iterator[Splice]:
    """``a[1:]`` becomes ``a[:]``, ``a[:n]`` becomes ``a[:]``."""
    for node in expressions(function):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            for bound in (node.slice.lower, node.slice.upper, node.slice.step):
                if bound is not None:
                    yield Splice(*code.span(bound), "")


@operator("A near relative of the right function is called.")
def twin_call(code: Code, function: Function) -> Iterator[Splice]:
    """``min(a)`` becomes ``max(a)``, ``a.lstrip()`` becomes ``a.rstrip()``."""
    for node in expressions(function):
        if not isinstance(node, ast.Call):
            continue
        end = code.span(node.func)[1]
        if isinstance(node.func, ast.Name):
            name = node.func.id
        elif isinstance(node.func, ast.Attribute):
            name = node.func.attr
        else:
            continue
        if name in TWINS:
            yield Splice(end - len(name), end, TWINS[name])


@operator("The wrong alternative of a conditional expression is taken.")
def swap_ifexp(code: Code, function: Function) -> Iterator[Splice]:
    """``a if c else b`` becomes ``b if c else a``."""
    simple = ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript
    for node in expressions(function):
        if not isinstance(node, ast.IfExp):
            continue
        one, two = code.span(node.body), code.span(node.orelse)
        bare = isinstance(node.body, simple) and isinstance(node.orelse, simple)
        if bare and glue(code, one[1], code.span(node.test)[0]) == "if":
            yield swap(code, one, two)
