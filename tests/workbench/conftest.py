"""A small repository of somebody's with a bug, and a home directory of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from making import BUGGY, TESTS, git, put

from tadpole.sandboxes.bubblewrap import BubblewrapEngine


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as every test finds it."""
    root = tmp_path_factory.mktemp("first") / "calc"
    put(root, {"calc.py": BUGGY, "tests/test_calc.py": TESTS, "README.md": "calc\n"})
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Somebody")
    git(root, "config", "user.email", "somebody@example.org")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "all of it")
    return root


@pytest.fixture
def repo(first: Path, tmp_path: Path) -> Path:
    root = tmp_path / "calc"
    shutil.copytree(first, root, symlinks=True)
    git(root, "update-index", "-q", "--refresh")  # the copies are other files to git
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
