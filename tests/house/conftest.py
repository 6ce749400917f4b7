"""Run directories for the tests of the house."""

from pathlib import Path

import pytest
from synthetic import fill

from tadpole.config import load
from tadpole.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", load())


@pytest.fixture
def finished(run: RunDir) -> RunDir:
    fill(run)
    return run
