from pathlib import Path

import pytest
from tinyrepo import HANGING, LIBRARY, ODD, PACKAGING, pack_wheels, repository

from tadpole.repos.pip import Pip
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tests.built_once import built_once, for_all_workers


@pytest.fixture(scope="session")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Pip:
    """Every environment of these tests is built from a directory of wheels alone."""
    return Pip.offline(pack_wheels(tmp_path_factory.mktemp("wheels")))


@pytest.fixture(scope="session")
def engine() -> BubblewrapEngine:
    return BubblewrapEngine()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, engine: BubblewrapEngine, pip: Pip) -> Store:
    return Store(for_all_workers(tmp_path_factory, "repos-cache"), engine, pip)


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with every kind of test."""

    def build(beside: Path) -> None:
        repository(beside / "shapes", PACKAGING, LIBRARY, ODD)

    return built_once(for_all_workers(tmp_path_factory, "repos-git"), "all", build) / "shapes"


@pytest.fixture(scope="session")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("git") / "hanging", PACKAGING, LIBRARY, HANGING)


@pytest.fixture
async def snapshot(store: Store, shapes: Path) -> Snapshot:
    return await store.snapshot(str(shapes))
