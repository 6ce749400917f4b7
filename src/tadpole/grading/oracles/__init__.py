"""Finds the checks of a test that can be rewritten, one module for each style of check.

An oracle is one statement that decides whether its test passes: an ``assert``, a call of
``self.assertEqual``, ``pytest.raises``, a call of ``numpy.testing``. It can be *inverted* (it
then holds where it did not) and, where it compares with something, *mutated* (it then compares
with something else, and no right program satisfies it).
"""

import ast
from collections.abc import Iterator

from tadpole.grading.oracles import asserts, calls, raising, unittests
from tadpole.grading.oracles.oracle import Oracle, Splice, Style, Text, spliced

__all__ = ["Oracle", "Splice", "Style", "Text", "oracles_of", "spliced"]

_READERS = (asserts.read, raising.read, unittests.read, calls.read)
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def oracles_of(text: Text, chain: tuple[str, ...]) -> list[Oracle]:
    """The oracles of the test function named by ``chain`` (classes, then the function).

    Those that can be mutated come first, then those that always run, then the rest; empty where
    the function is not in this file.
    """
    function = _function(text.tree.body, chain)
    if function is None:
        return []
    found = []
    for depth, statement in _statements(function.body):
        oracle = next((o for reader in _READERS if (o := reader(statement, text))), None)
        if oracle is not None:
            found.append((oracle.mutate is None, depth, oracle))
    return [oracle for *_, oracle in sorted(found, key=lambda one: one[:2])]


def _function(
    body: list[ast.stmt], chain: tuple[str, ...]
) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last definition of that name, as Python would have it."""
    name, rest = chain[0], chain[1:]
    for node in reversed(body):
        if rest and isinstance(node, ast.ClassDef) and node.name == name:
            return _function(node.body, rest)
        if rest or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name == name:
            return node
    return None


def _statements(body: list[ast.stmt], depth: int = 0) -> Iterator[tuple[int, ast.stmt]]:
    """Statements that run whenever the test does (0), or where a loop has a turn (1)."""
    for node in body:
        yield depth, node
        if isinstance(node, ast.With | ast.AsyncWith):
            if not any(raising.expects(item.context_expr) for item in node.items):
                yield from _statements(node.body, depth)
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from _statements(node.body, depth + 1)
