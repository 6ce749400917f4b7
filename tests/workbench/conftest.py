"""A small repository of somebody's with a bug, its boxes, and its own configuration directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.task import FileChange
from tadpole.workbench.base import Base, read_base, write_tree
from tadpole.workbench.change import Change, change_of
from tadpole.workbench.environment import Environment
from tadpole.workbench.gate import Gate
from tadpole.workbench.policy import read_policy
from tadpole.workbench.usergit import UserGit

VENV = Path(sys.prefix)  # it has pytest
BUGGY = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"
FIXED = BUGGY.replace("a - b", "a + b")
TESTS = (
    "from calc import add, double\n\n\n"
    "def test_add():\n    assert add(2, 3) == 5\n\n\n"
    "def test_double():\n    assert double(4) == 8\n"
)


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    argv = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def put(root: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


def census(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory, .git included: mode and content, links as what they say."""
    found = {}
    for folder, names, leaves in os.walk(root):
        for name in (*leaves, *(n for n in names if os.path.islink(os.path.join(folder, n)))):
            path = os.path.join(folder, name)
            content = (
                os.readlink(path).encode() if os.path.islink(path) else Path(path).read_bytes()
            )
            found[os.path.relpath(path, root)] = (os.lstat(path).st_mode, content)
    return found


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "calc"
    put(root, {"calc.py": BUGGY, "tests/test_calc.py": TESTS, "README.md": "calc\n"})
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Somebody")
    git(root, "config", "user.email", "somebody@example.org")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "all of it")
    return root


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / "person"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    yield home


@pytest.fixture
def engine() -> BubblewrapEngine:
    return BubblewrapEngine()


def edit(base: Base, files: dict[str, str | bytes | None], runs: tuple[str, ...] = ()) -> Change:
    """A change as a box would leave it."""
    delta = [
        FileChange(path, text.encode() if isinstance(text, str) else text, path in runs)
        for path, text in files.items()
    ]
    return change_of(base, delta)


async def gate_of(root: Path, scratch: Path, engine: BubblewrapEngine) -> Gate:
    base = read_base(UserGit(root), dirty=False)
    tree = scratch / f"tree-{base.digest[:8]}"
    await write_tree(base, tree)
    return Gate(engine, Environment(VENV, "as given"), base, tree, read_policy(base.files))
