"""Whether a statement tells enough: what the hidden tests ask for can be known beforehand.

Two questions, for the two ways in which a task comes to be.

*Written* tasks (:class:`Chosen`): names, texts, numbers and exceptions that the solution chose
and the tests check must be in the statement, or in the repository that the agent reads.

*Mutations* (:func:`documented`): the function that was broken, or its class, has a docstring, or
it stands in the project's guides. Where it does not, :mod:`tadpole.pilot.admission` asks more.

Does not guard against: behaviour that a solver has to guess although no name or value of it is
new, for example an order of results. A person may read the statements with ``tasks show``.
"""

import ast
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tadpole.pilot.added import stretches
from tadpole.pilot.code import Code, parse, said
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
    return tuple(one.value for one in Chosen(tree, start, solved).untold(statement, tests))


class Asked(NamedTuple):
    """What a test checks."""

    value: str
    is_text: bool = False  # else a name or a number


class Chosen:
    """The names and values that a solution brings along: many statements are held against them."""

    def __init__(self, tree: Path, start: Contents, solved: Contents) -> None:
        readable = [file for path, file in _files(tree).items() if path not in start]
        readable += [_File.of(content or b"") for content in start.values()]
        added = _added(start, solved)
        self._names = _found(_WORD, added) - _read_in(readable, _found(_WORD, added))
        numbers = _found(_NUMBER, added) - _COMMON
        self._numbers = numbers - _read_in(readable, numbers)
        self._raised = frozenset(re.findall(r"\braise\s+(?:\w+\.)*([A-Z]\w*)", added))
        self._strings, self._readable = added, readable

    def untold(self, statement: str, tests: Sequence[FileChange]) -> tuple[Asked, ...]:
        """What the tests check that neither the statement nor the repository tells."""
        missing: dict[Asked, None] = {}
        for test in tests:
            try:
                module = Code.decode(test.path, test.content or b"").tree
            except ValueError:
                continue
            missing.update(dict.fromkeys(self.unknown(module, statement)))
        return tuple(missing)

    def unknown(self, module: ast.Module, statement: str) -> Iterator[Asked]:
        """The names and values of a test module that nobody was told."""
        words = _found(_WORD, statement)
        numbers = _found(_NUMBER, statement)
        own = {n.id for n in ast.walk(module) if isinstance(n, ast.Name) and _stored(n)}
        own |= {n.name for n in ast.walk(module) if isinstance(n, _DEFINED)}
        modules = _modules(module)
        local = modules | _local(module)
        for node in ast.walk(module):
            for name in _names(node, modules):
                known = own | local if isinstance(node, ast.Name) else own
                if name in self._names - words - known:
                    yield Asked(name)
            for name in _expected_errors(node):
                if name in self._raised - words:
                    yield Asked(name)
            if isinstance(node, ast.Constant):
                value = node.value
                if isinstance(value, str) and self._is_choice(value, statement):
                    yield Asked(value, is_text=True)
                elif type(value) in (int, float) and str(value) in self._numbers - numbers:
                    yield Asked(str(value))

    def _is_choice(self, value: str, statement: str) -> bool:
        """A text of the solution that is neither in the repository nor in the statement."""
        return (
            len(value) >= _SHORTEST
            and value in self._strings
            and not any(value in file.text for file in self._readable)
            and value not in statement
        )


_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


@lru_cache(maxsize=1000)
def _is_standard(module: str) -> bool:
    """Whether a module, perhaps inside a package, is one of the standard library."""
    top, *inner = module.split(".")
    place = Path(sysconfig.get_path("stdlib"), top, *inner)
    return top in sys.stdlib_module_names and (
        not inner or place.is_dir() or place.with_suffix(".py").is_file()
    )


def _modules(module: ast.Module) -> frozenset[str]:
    """The names under which a test has whole modules of the standard library."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            known = (alias for alias in node.names if _is_standard(alias.name))
            found |= {alias.asname or alias.name.partition(".")[0] for alias in known}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known = (a for a in node.names if _is_standard(f"{node.module}.{a.name}"))
            found |= {alias.asname or alias.name for alias in known}
    return frozenset(found)


def _local(module: ast.Module) -> frozenset[str]:
    """Arguments, and what errors and imports are called here: names that the test chose."""
    found: set[str | None] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ExceptHandler):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname)
    return frozenset(name for name in found if name)


def _names(node: ast.AST, modules: frozenset[str]) -> Iterator[str]:
    """The names that a node uses, without modules of the standard library (``modules``: as the
    test calls them)."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        dotted = _dotted(node)
        if dotted.partition(".")[0] not in modules or not _is_standard(dotted):
            yield node.attr
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if not _is_standard(alias.name):
                yield from alias.name.split(".")
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        if not _is_standard(module):
            yield from filter(None, module.split("."))
        for alias in node.names:
            if not _is_standard(f"{module}.{alias.name}"):
                yield alias.name


def _dotted(node: ast.expr) -> str:
    """Names with dots between them; empty for anything else."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _expected_errors(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and node.args:
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("raises", "assertRaises", "assertRaisesRegex"):
            for inner in ast.walk(node.args[0]):
                yield from _names(inner, frozenset())


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


@dataclass(frozen=True)
class _File:
    """A text, with its words and numbers."""

    text: str
    tokens: frozenset[str]

    @classmethod
    def of(cls, content: bytes) -> "_File":
        text = content.decode("utf-8", "replace")
        return cls(text, _found(_WORD, text) | _found(_NUMBER, text))


def _read_in(files: Sequence[_File], tokens: frozenset[str]) -> frozenset[str]:
    """Those of the tokens that a reader meets."""
    return frozenset(token for token in tokens if any(token in file.tokens for file in files))


@lru_cache(maxsize=32)  # trees lie in a cache that is named by their content
def _files(tree: Path) -> dict[str, _File]:
    """What the agent can read, by path."""
    paths = (path for path in sorted(tree.rglob("*")) if path.suffix in _TEXTS and path.is_file())
    return {path.relative_to(tree).as_posix(): _File.of(_read(path)) for path in paths}


# --- mutations -----------------------------------------------------------------------------------


def documented(tree: Path, pristine: Code, functions: Iterable[str]) -> bool:
    """Whether each function says what it is for: its docstring, its class's, or a guide."""
    told = {one.name for one in pristine.functions if one.docstring}
    told |= {
        node.name
        for node in ast.walk(pristine.tree)
        if isinstance(node, ast.ClassDef) and said(node)
    }
    guides = _guides(tree)
    return all(
        name in told or told.intersection(name.split(".")[:-1]) or name.split(".")[-1] in guides
        for name in functions
    )


@lru_cache(maxsize=32)
def _guides(tree: Path) -> frozenset[str]:
    """The names that README and other guides write as code: followed by a bracket, or quoted."""
    text = "\n".join(one.text for path, one in _files(tree).items() if path.endswith(_GUIDES))
    return frozenset(a or b for a, b in re.findall(r"(\w+)\(|`(?:\w+\.)*(\w+)`", text))


def parses(path: str, content: bytes | None) -> bool:
    """Whether a file is Python, or none that has to be."""
    if not path.endswith(".py") or content is None:
        return True
    try:
        parse(content.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True
