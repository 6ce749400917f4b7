"""Takes hidden test functions out of test files, decorators and all parameter sets included.

The rest of a file stays byte for byte. What cannot be found by name in its own file (a test
that a loop or another module defines, a doctest) cannot be hidden; the caller then drops the
candidate.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tadpole.pilot.code import Code, Routine

Chain = tuple[str, ...]  # class names and the function name, outermost first


def locate(node_id: str) -> tuple[str, Chain]:
    """Split a pytest node id into its file and the names inside, parameters left out."""
    path, _, rest = node_id.partition("::")
    return path, tuple(rest.partition("[")[0].split("::"))


def by_file(ids: Iterable[str]) -> dict[str, set[Chain]]:
    """The test functions of node ids, per file."""
    found: dict[str, set[Chain]] = defaultdict(set)
    for node_id in ids:
        path, chain = locate(node_id)
        found[path].add(chain)
    return dict(found)


def without_tests(path: str, content: bytes, chains: Iterable[Chain]) -> bytes | None:
    """The file without these tests; None where one of them cannot be taken out cleanly."""
    try:
        code = Code.decode(path, content)
    except ValueError:
        return None
    gone: list[ast.stmt] = []
    for chain in sorted(chains):
        found = list(_definitions(code.tree.body, chain, code.tree.body))
        if not found:
            return None
        gone.extend(found)
    return _cut(code, gone)


def source_of(path: str, content: bytes, chain: Chain) -> str:
    """The source of one test, decorators included; empty where it is not found."""
    code = Code.decode(path, content)
    for node in _definitions(code.tree.body, chain, code.tree.body):
        first = _first_line(node)
        return code.text[code.starts[first - 1] : code.starts[node.end_lineno or first]]
    return ""


def _definitions(body: list[ast.stmt], chain: Chain, module: list[ast.stmt]) -> Iterator[Routine]:
    """Every definition that a chain of names means, in base classes of the same file too."""
    name, rest = chain[0], chain[1:]
    for node in _flat(body):
        if not rest and isinstance(node, Routine) and node.name == name:
            yield node
        elif rest and isinstance(node, ast.ClassDef) and node.name == name:
            found = list(_definitions(node.body, rest, module))
            for base in node.bases if not found else ():
                if isinstance(base, ast.Name) and base.id != name:
                    found.extend(_definitions(module, (base.id, *rest), module))
            yield from found


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a block and of the conditions and attempts inside it."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(node, part, []))


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _cut(code: Code, gone: list[ast.stmt]) -> bytes | None:
    wanted = {id(node) for node in gone}
    text = code.text
    spans: list[tuple[int, int, str]] = []
    for owner in ast.walk(code.tree):
        for part in ("body", "orelse", "finalbody"):
            block = getattr(owner, part, None)
            if not isinstance(block, list):
                continue
            leaving = [node for node in block if id(node) in wanted]
            for number, node in enumerate(leaving):
                lines = code.whole_lines(node)
                if lines is None:
                    return None
                start = code.starts[_first_line(node) - 1]
                emptied = number == 0 and len(leaving) == len(block) and owner is not code.tree
                indent = text[lines[0] : code.span(node)[0]]
                fill = f"{indent}pass{code.ending(node.lineno)}" if emptied else ""
                spans.append((start, lines[1], fill))
    for start, end, fill in sorted(spans, reverse=True):
        text = text[:start] + fill + text[end:]
    return code.encode(text)
