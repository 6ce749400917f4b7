"""Reads Python source into its tree. Nobody else calls the parser on the host.

CPython 3.11 counts the depth of a tree that is being built once for all threads, so that two of
them raise SystemError now and then (python/cpython#106905); and what silences warnings does so
for all threads, too. So threads take turns.
"""

import ast
import threading
import warnings

_TURN = threading.RLock()


def expression(source: str) -> ast.expr:
    """The tree of one expression. Raises ValueError for anything else."""
    body = parse(source).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise ValueError("not one expression")
    return body[0].value


def parse(source: str | bytes) -> ast.Module:
    """The tree of a source text. Raises ValueError, in one line, for what is no Python."""
    with _TURN, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            # A parser that runs out of its stack says nothing at all.
            said = next(iter(str(error).splitlines()), "nested too deeply")
            raise ValueError(said) from error
