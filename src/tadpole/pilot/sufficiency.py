"""Whether a statement tells enough: what the hidden tests ask for can be known beforehand.

Two questions, for the two ways in which a task comes to be.

*Written* tasks (:func:`untold`): names, texts, numbers and exceptions that the solution chose
and the tests check must be in the statement, or in the repository that the agent reads.

*Mutations* (:func:`sufficient`): the function that was broken has a docstring or stands in the
project's documentation; or each failing test fails with an error that the statement tells, or is
told itself. The dictated edit is always enough.

Does not guard against: behaviour that a solver has to guess although no name or value of it is
new, for example an order of results. A person may read the statements with ``tasks show``.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from tadpole.pilot.added import stretches
from tadpole.pilot.code import Code, parse
from tadpole.pilot.symptom import Symptom
from tadpole.task import FileChange

_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TEXTS = (".py", ".pyi", ".md", ".rst", ".txt", ".toml", ".cfg")
_GUIDES = (".md", ".rst", ".txt")
_LARGEST = 1 << 20
_COMMON = frozenset({"0", "1", "2", "-1", "10", "100"})  # numbers that any test may count with
_SHORTEST = 4  # characters of a text that somebody chose

Contents = Mapping[str, bytes | None]


def untold(
    statement: str,
    tree: Path,
    start: Contents,
    solved: Contents,
    tests: Sequence[FileChange],
) -> tuple[str, ...]:
    """What the tests check that only the solution could tell; empty where all is told.

    ``start`` holds every file that the start differs in from ``tree`` or that is edited, None
    where there is none.
    """
    chosen = _Chosen(tree, start, solved)
    missing: dict[str, None] = {}
    for test in tests:
        try:
            module = Code.decode(test.path, test.content or b"").tree
        except ValueError:
            continue
        missing.update(dict.fromkeys(chosen.unknown(module, statement)))
    return tuple(missing)


class _Chosen:
    """The names and values that a solution brings along."""

    def __init__(self, tree: Path, start: Contents, solved: Contents) -> None:
        texts = [text for path, text in _texts(tree).items() if path not in start]
        texts += [(content or b"").decode("utf-8", "replace") for content in start.values()]
        self._readable, added = "\n".join(texts), _added(start, solved)
        self._names = _found(_WORD, added) - _found(_WORD, self._readable)
        self._numbers = _found(_NUMBER, added) - _found(_NUMBER, self._readable) - _COMMON
        self._raised = frozenset(re.findall(r"\braise\s+(?:\w+\.)*([A-Z]\w*)", added))
        self._strings = added

    def unknown(self, module: ast.Module, statement: str) -> Iterator[str]:
        """The names and values of a test module that nobody was told."""
        words = _found(_WORD, statement)
        numbers = _found(_NUMBER, statement)
        own = {n.id for n in ast.walk(module) if isinstance(n, ast.Name) and _stored(n)}
        own |= {n.name for n in ast.walk(module) if isinstance(n, _DEFINED)}
        for node in ast.walk(module):
            for name in _names(node):
                if name in self._names - words - own:
                    yield name
            for name in _expected_errors(node):
                if name in self._raised - words:
                    yield name
            if isinstance(node, ast.Constant):
                value = node.value
                if isinstance(value, str) and self._is_choice(value, statement):
                    yield value
                elif type(value) in (int, float) and str(value) in self._numbers - numbers:
                    yield str(value)

    def _is_choice(self, value: str, statement: str) -> bool:
        """A text of the solution that is neither in the repository nor in the statement."""
        return (
            len(value) >= _SHORTEST
            and value in self._strings
            and value not in self._readable
            and value not in statement
        )


_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg
    elif isinstance(node, ast.alias):
        yield from node.name.split(".")
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from node.module.split(".")


def _expected_errors(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and node.args:
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("raises", "assertRaises", "assertRaisesRegex"):
            for inner in ast.walk(node.args[0]):
                yield from _names(inner)


def _added(start: Contents, solved: Contents) -> str:
    lines: list[str] = []
    for path, new in solved.items():
        lines += [line for one in stretches(start.get(path), new) for line in one.lines]
        lines += re.split(r"[/.]", path) if start.get(path) is None else []
    return "\n".join(lines)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and path.stat().st_size < _LARGEST else b""


def _found(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    return frozenset(pattern.findall(text))


@lru_cache(maxsize=4)  # trees lie in a cache that is named by their content
def _texts(tree: Path) -> dict[str, str]:
    """What the agent can read, by path."""
    paths = (path for path in sorted(tree.rglob("*")) if path.suffix in _TEXTS and path.is_file())
    return {
        path.relative_to(tree).as_posix(): _read(path).decode("utf-8", "replace") for path in paths
    }


# --- mutations -----------------------------------------------------------------------------------


def documented(tree: Path, pristine: Code, functions: Iterable[str]) -> bool:
    """Whether each function says what it is for, in its docstring or in the project's guides."""
    docstrings = {one.name: one.docstring for one in pristine.functions}
    return all(
        docstrings.get(name) or name.rpartition(".")[2] in _guides(tree) for name in functions
    )


@lru_cache(maxsize=4)
def _guides(tree: Path) -> frozenset[str]:
    """The names that README and other guides write as code: followed by a bracket, or quoted."""
    text = "\n".join(text for path, text in _texts(tree).items() if path.endswith(_GUIDES))
    return frozenset(a or b for a, b in re.findall(r"(\w+)\(|`(?:\w+\.)*(\w+)`", text))


def sufficient(told: Sequence[Symptom], failing: Sequence[Symptom]) -> bool:
    """Whether each failure is one that was told, or an error of a kind that was told.

    For code that nothing documents. An assertion that is not told could want anything.
    """
    errors = {symptom.exception for symptom in told if not symptom.is_assertion}
    return all(symptom in told or symptom.exception in errors for symptom in failing)


def parses(path: str, content: bytes | None) -> bool:
    """Whether a file is Python, or none that has to be."""
    if not path.endswith(".py") or content is None:
        return True
    try:
        parse(content.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True
