"""Whether the agent could read the answer: in its tree, in its environment, in its statement.

Looked for are the lines that the solution adds, with the lines around them, and the functions of
the hidden tests. Runs of blanks count as one, so a copy that is indented otherwise is found.

Guards against: copies of the repaired file that a build, a vendoring or an editor left in the
repository or in its environment, hidden tests that lie there twice, statements that quote the
solution or the tests. Does not guard against: an answer in other words, in an archive or in an
image; and a line that is told on purpose, as the top rung of the hint ladder does.
"""

import ast
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from tadpole.pilot.added import lines_of, squeezed, stretches
from tadpole.pilot.code import Code
from tadpole.pilot.hide import by_file, source_of
from tadpole.repos.snapshot import Snapshot
from tadpole.task import FileChange, Task

_LARGEST = 1 << 20  # bytes of a file that is looked through
_WINDOW = 3  # lines, at least, that make a copy rather than a coincidence
_SHORTEST = 16  # characters of a line that says something
_OPENING = ("def ", "async def ", "class ", "import ", "from ", "@", "#", "else", "try", "finally")

Contents = Mapping[str, bytes | None]


def of_answer(snapshot: Snapshot, task: Task) -> str:
    """Where the solver of a task could read its answer; empty where nowhere."""
    start = {}
    for change in task.gold:
        file = snapshot.tree / change.path
        start[change.path] = file.read_bytes() if file.is_file() else None
    start |= {change.path: change.content for change in task.start}
    solved = {change.path: change.content for change in task.gold}
    return in_tree(snapshot.tree, start, solved, task.hidden, task.fail_to_pass) or installed(
        snapshot.venv, solved, task.recipe.import_paths
    )


def in_tree(
    tree: Path, start: Contents, solved: Contents, hidden: Sequence[FileChange], ids: Iterable[str]
) -> str:
    """Where a copy of the solution or of a hidden test can be read; empty where nowhere.

    ``start`` holds every file that the start differs in from ``tree`` or that is edited, None
    where there is none; ``ids`` are the hidden tests.
    """
    texts = {**_texts(tree), **{path: _text(content or b"") for path, content in start.items()}}
    wanted = list(_tests(hidden, ids))
    for path, content in solved.items():
        wanted += [(path, window) for window in _windows(start.get(path), content)]
    for own, window in wanted:
        for path, text in texts.items():
            if path != own and window in text:
                return path
    return ""


def installed(venv: Path, paths: Iterable[str], roots: Iterable[str] = (".", "src")) -> str:
    """An edited file of which the environment holds another copy; empty where there is none."""
    for path in paths:
        for root in roots:
            inside = path.removeprefix("" if root == "." else f"{root}/")
            for found in venv.glob(f"lib*/python*/site-packages/{inside}"):
                return str(found.relative_to(venv))
    return ""


def in_statement(
    text: str, start: Contents, solved: Contents, tests: Sequence[FileChange] = ()
) -> str:
    """The line of the solution or of a test that a statement quotes; empty where it quotes none.

    Signatures, imports, comments and docstrings may be told: they are the contract.
    """
    told = squeezed(text)
    lines = [line for path in solved for line in _said(path, start.get(path), solved[path])]
    lines += [line for test in tests for line in _said(test.path, None, test.content)]
    return next((line for line in lines if line in told), "")


def _said(path: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    prose = _prose(path, new or b"")
    for stretch in stretches(old, new):
        for number, line in zip(stretch.numbers, stretch.lines, strict=False):
            text = squeezed(line)
            if len(text) >= _SHORTEST and number not in prose and not text.startswith(_OPENING):
                yield text


@lru_cache(maxsize=64)
def _prose(path: str, content: bytes) -> frozenset[int]:
    """The lines of docstrings."""
    try:
        tree = Code.decode(path, content).tree
    except ValueError:
        return frozenset()
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(found)


def _windows(old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Each stretch that the solution adds, with the lines around it."""
    lines = [squeezed(line) for line in lines_of(new or b"")]
    for stretch in stretches(old, new):
        first, last = stretch.first - 1, stretch.first - 1 + len(stretch.lines)
        while len(found := [line for line in lines[first:last] if line]) < _WINDOW + 2:
            if first == 0 and last >= len(lines):
                break
            first, last = max(0, first - 1), min(len(lines), last + 1)
        if len(found) >= _WINDOW and stretch.lines:
            yield _joined(found)


def _tests(hidden: Sequence[FileChange], ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    contents = {change.path: change.content or b"" for change in hidden}
    for path, chains in by_file(ids).items():
        for chain in sorted(chains):
            source = ""
            with contextlib.suppress(ValueError):  # a test that is no Python, such as a text
                source = source_of(path, contents.get(path, b""), chain)
            lines = [line for line in map(squeezed, source.splitlines()) if line]
            if len(lines) >= _WINDOW:
                yield path, _joined(lines)


def _joined(lines: Iterable[str]) -> str:
    return "\n" + "\n".join(lines) + "\n"


def _text(content: bytes) -> str:
    if b"\0" in content[:4096] or len(content) > _LARGEST:
        return ""
    return _joined(line for line in map(squeezed, lines_of(content)) if line)


@lru_cache(maxsize=32)  # trees lie in a cache that is named by their content
def _texts(tree: Path) -> dict[str, str]:
    files = (path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(tree).as_posix(): _text(path.read_bytes()) for path in files}
