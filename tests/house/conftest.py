"""Run directories for the tests of the house."""

import shutil
from pathlib import Path

import pytest
from synthetic import fill

from tadpole.config import load
from tadpole.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", load())


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDir.create(tmp_path_factory.mktemp("filled") / "run", load())
    fill(run)
    return run.path


@pytest.fixture
def finished(filled: Path, tmp_path: Path) -> RunDir:
    return RunDir.open(shutil.copytree(filled, tmp_path / "run"))
