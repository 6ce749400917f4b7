"""Removal of a whole body: the signature and the docstring stay."""

import ast
from collections.abc import Iterator

from tadpole.pilot.code import Code, Function
from tadpole.pilot.operators.registry import Splice, operator


@operator("The body of this function is missing.", inline=False, worth=0.82)
def remove_body(code: Code, function: Function) -> Iterator[Splice]:
    """The body becomes ``raise NotImplementedError``."""
    body = function.body
    trivial = len(body) == 1 and isinstance(body[0], ast.Pass | ast.Raise)
    if not body or trivial:
        return
    first, last = code.whole_lines(body[0]), code.whole_lines(body[-1])
    if first is None or last is None:
        return
    indent = code.text[first[0] : code.span(body[0])[0]]
    ending = code.ending(body[-1].end_lineno or body[-1].lineno)
    yield Splice(first[0], last[1], f"{indent}raise NotImplementedError{ending}", body[0])
