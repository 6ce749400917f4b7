"""What an operator is: a name, a sentence for the solver, and a finder of splices."""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tadpole.pilot.code import Code, Function


@dataclass(frozen=True)
class Splice:
    """Replace the characters ``start:end`` of the file by ``text``."""

    start: int
    end: int
    text: str
    node: ast.stmt | None = None  # the statement it belongs to, where the finder knows it


Finder = Callable[[Code, Function], Iterator[Splice]]


@dataclass(frozen=True)
class Operator:
    """One way to put in a bug. ``inline``: the edit stays inside one line."""

    name: str
    explanation: str  # shown on a high rung of the hint ladder
    find: Finder
    inline: bool
    worth: float = 0.7  # share of its proposals that few enough tests notice, measured


OPERATORS: dict[str, Operator] = {}


def operator(
    explanation: str, *, inline: bool = True, worth: float = 0.7
) -> Callable[[Finder], Finder]:
    """Register a finder under its own name."""

    def register(find: Finder) -> Finder:
        OPERATORS[find.__name__] = Operator(find.__name__, explanation, find, inline, worth)
        return find

    return register


def expressions(function: Function) -> Iterator[ast.expr]:
    """Every expression of the body in a fixed order, except inside f-strings and annotations.

    (Positions inside f-strings are wrong before Python 3.12; annotations are not behaviour.)
    """
    stack: list[ast.AST] = list(reversed(function.body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.expr):
            yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.AnnAssign):
            children.remove(node.annotation)
        elif isinstance(node, ast.arg):
            children = []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            children.remove(node.returns)
        stack.extend(reversed(children))


def blocks(function: Function) -> Iterator[tuple[ast.AST, str, Sequence[ast.stmt]]]:
    """Every statement list of the body as (owner, field, statements), the docstring left out."""
    yield function.node, "body", function.body
    for top in function.body:
        for node in ast.walk(top):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    yield node, name, block


def is_elif(code: Code, node: ast.stmt) -> bool:
    """Whether an ``if`` statement is written as ``elif``."""
    return isinstance(node, ast.If) and code.text.startswith("elif", code.span(node)[0])


def glue(code: Code, start: int, end: int) -> str | None:
    """The operator written between two operands, e.g. ``not in``; None beside parentheses."""
    texts = [token.text for token in code.between(start, end)]
    return None if not texts or any(text in "()" for text in texts) else " ".join(texts)


def replace_glue(code: Code, start: int, end: int, text: str) -> Splice:
    """Replace the tokens between two operands and keep the blanks around them."""
    tokens = code.between(start, end)
    return Splice(tokens[0].start, tokens[-1].end, text)


def swap(code: Code, first: tuple[int, int], second: tuple[int, int]) -> Splice:
    """Exchange two spans, ``first`` before ``second``."""
    text = code.text
    middle = text[first[1] : second[0]]
    new = text[second[0] : second[1]] + middle + text[first[0] : first[1]]
    return Splice(first[0], second[1], new)
