import asyncio

import brook as brook_library
import pond
import pytest

from tadpole import process
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.sandboxes.bubblewrap import BubblewrapEngine

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> str:
    """A real git repository with the tiny library."""
    root = pond.build(tmp_path_factory.mktemp("git") / "pond")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        done = process.run([*GIT, "-C", str(root), *words], timeout=30)
        assert done.ok, done
    return str(root)


@pytest.fixture(scope="session")
def engine() -> BubblewrapEngine:
    return BubblewrapEngine()


@pytest.fixture(scope="session")
def store(tmp_path_factory, engine) -> Store:
    return Store(tmp_path_factory.mktemp("cache"), engine, pond.LocalPip())


@pytest.fixture(scope="session")
def snapshot(store, repository) -> Snapshot:
    return asyncio.run(store.snapshot(repository))


@pytest.fixture(scope="session")
def brook_clone(tmp_path_factory) -> str:
    """A git clone with a history."""
    return str(brook_library.build(tmp_path_factory.mktemp("git") / "brook"))


@pytest.fixture(scope="session")
def brook(store, brook_clone) -> Snapshot:
    return asyncio.run(store.snapshot(brook_clone))
