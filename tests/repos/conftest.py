import os
from pathlib import Path

import pytest
from tinyrepo import HANGING, LIBRARY, ODD, PYPROJECT, pack_wheels, repository

from tadpole.repos.pip import Pip
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.sandboxes.bubblewrap import BubblewrapEngine


@pytest.fixture(scope="session")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Pip:
    wheels = pack_wheels(tmp_path_factory.mktemp("wheels"))
    return Pip(
        env={
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
        }
    )


@pytest.fixture(scope="session")
def engine() -> BubblewrapEngine:
    return BubblewrapEngine()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, engine: BubblewrapEngine, pip: Pip) -> Store:
    return Store(tmp_path_factory.mktemp("cache"), engine, pip)


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with every kind of test."""
    return repository(tmp_path_factory.mktemp("git") / "shapes", PYPROJECT, LIBRARY, ODD)


@pytest.fixture(scope="session")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("git") / "hanging", PYPROJECT, LIBRARY, HANGING)


@pytest.fixture
async def snapshot(store: Store, shapes: Path) -> Snapshot:
    return await store.snapshot(str(shapes))
