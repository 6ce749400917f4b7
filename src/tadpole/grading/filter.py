"""Which files of an agent are taken into grading, and why the others are not.

Guards against: changes to what decides the verdict instead of to the code: hidden and visible
tests, pytest's hooks and configuration, Python's start-up files, plugins announced by package
metadata, bytecode, and modules that take the place of the standard library, pytest or an
installed package. What is dropped here stays in the agent's patch: a new test is good work, it
just does not grade itself.

Does not guard against: source code that misbehaves when it is imported. That is the business of
:mod:`tadpole.grading.bootstrap`. Docstring tests of source files are graded as the agent left
them, so tasks must not use them.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path, PurePosixPath

from tadpole.grading.patch import in_git_directory, is_plain
from tadpole.task import FileChange, Task


class DropReason(StrEnum):
    """Why a file of the agent does not take part in grading. The text is for a person."""

    OUTSIDE = "path outside the work tree"
    GIT = "inside a .git directory"
    HIDDEN_TEST = "hidden test"
    TEST = "test file"
    PYTEST = "pytest hooks or configuration"
    STARTUP = "runs when Python starts"
    METADATA = "package metadata that can announce plugins"
    COMPILED = "compiled code"
    SHADOW = "takes the place of an installed module"


@dataclass(frozen=True)
class Dropped:
    """One file that was left out."""

    path: str
    reason: DropReason


@dataclass(frozen=True)
class Split:
    """A delta in two parts, both in the order of the delta."""

    accepted: tuple[FileChange, ...]
    dropped: tuple[Dropped, ...]


_PYTEST_FILES = frozenset(
    {"conftest.py", "setup.cfg", "tox.ini"}
    | {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"}
)
_STARTUP_MODULES = frozenset({"sitecustomize", "usercustomize"})
_METADATA_SUFFIXES = (".egg-info", ".dist-info")
_COMPILED_SUFFIXES = (".pyc", ".pyo", ".so", ".pyd")
_TEST_DIRECTORIES = frozenset({"tests", "test"})
_OURS = frozenset(
    {"pytest", "_pytest", "pluggy", "py"}
    | {"iniconfig", "packaging", "exceptiongroup", "tomli", "pygments"}
)


def split(
    task: Task,
    delta: Sequence[FileChange],
    *,
    in_tree: Callable[[str], bool],
    installed: Collection[str] = (),
) -> Split:
    """Sort the files of ``delta`` for grading ``task``.

    ``in_tree`` says whether a path exists in the start tree; ``installed`` are the top-level
    module names of the environment (see :func:`installed_modules`).
    """
    rules = _Rules(task, in_tree, frozenset(installed))
    verdicts = [(change, rules.reason(change.path)) for change in delta]
    return Split(
        accepted=tuple(change for change, reason in verdicts if reason is None),
        dropped=tuple(Dropped(c.path, reason) for c, reason in verdicts if reason is not None),
    )


@lru_cache(maxsize=64)
def installed_modules(venv: Path) -> frozenset[str]:
    """Top-level module names of a virtual environment on this machine; none if it is not one."""
    if not (venv / "pyvenv.cfg").is_file():
        return frozenset()
    entries = [entry for place in venv.glob("lib*/python*/site-packages") for entry in _list(place)]
    return frozenset(
        entry.name.split(".", 1)[0]
        for entry in entries
        if not entry.name.endswith((*_METADATA_SUFFIXES, ".pth")) and entry.name != "__pycache__"
    )


def _list(directory: Path) -> Iterable[Path]:
    return directory.iterdir() if directory.is_dir() else ()


class _Rules:
    def __init__(
        self, task: Task, in_tree: Callable[[str], bool], installed: frozenset[str]
    ) -> None:
        self._in_tree = in_tree
        self._taken = (sys.stdlib_module_names | _OURS | installed) - set(task.recipe.packages)
        self._roots = {_clean(root) for root in (".", *task.recipe.import_paths)}
        self._hidden = {change.path for change in task.hidden}
        graded = {node.split("::", 1)[0] for node in (*task.fail_to_pass, *task.pass_to_pass)}
        source = [change.path for change in task.gold]
        places = {_clean(path) for path in task.recipe.test_paths} - {""}
        places |= {place for path in graded | self._hidden for place in _test_directories(path)}
        # A place that holds source files (a package with tests inside) is not one for tests.
        self._tests = graded | {p for p in places if not any(_within(s, p) for s in source)}

    def reason(self, path: str) -> DropReason | None:
        """Why the file is left out; None: it is taken."""
        if not is_plain(path):
            return DropReason.OUTSIDE
        if in_git_directory(path):
            return DropReason.GIT
        parts = PurePosixPath(path).parts
        name = parts[-1]
        # The other way round as well: a file in the place of a directory that holds tests.
        if any(_within(path, hidden) or _within(hidden, path) for hidden in self._hidden):
            return DropReason.HIDDEN_TEST
        if name in _PYTEST_FILES:
            return DropReason.PYTEST
        if any(_within(path, place) or _within(place, path) for place in self._tests):
            return DropReason.TEST
        if name.endswith(".pth") or any(p.split(".", 1)[0] in _STARTUP_MODULES for p in parts):
            return DropReason.STARTUP
        if any(part.endswith(_METADATA_SUFFIXES) for part in parts):
            return DropReason.METADATA
        if "__pycache__" in parts or name.endswith(_COMPILED_SUFFIXES):
            return DropReason.COMPILED
        if any(self._shadows(path, root) for root in self._roots):
            return DropReason.SHADOW
        return None

    def _shadows(self, path: str, root: str) -> bool:
        if not path.endswith(".py") or not _within(path, root):
            return False
        top = path[len(root) + 1 :].split("/", 1)[0] if root else path.split("/", 1)[0]
        module = top.removesuffix(".py")
        prefix = f"{root}/" if root else ""
        known = self._in_tree(prefix + module) or self._in_tree(f"{prefix}{module}.py")
        return module in self._taken and not known


def _clean(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _within(path: str, place: str) -> bool:
    return not place or path == place or path.startswith(f"{place}/")


def _test_directories(path: str) -> Iterable[str]:
    parts = path.split("/")[:-1]
    for depth, part in enumerate(parts, start=1):
        if part in _TEST_DIRECTORIES:
            yield "/".join(parts[:depth])
