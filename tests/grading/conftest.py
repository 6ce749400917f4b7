from pathlib import Path

import pytest
from calc_task import BASE, CountingEngine, FixedStore, new_task

from tadpole.grading.grader import PytestGrader
from tadpole.task import Task


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("calc")
    for path, content in BASE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


@pytest.fixture
def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
def store(tree) -> FixedStore:
    return FixedStore(tree)


@pytest.fixture
def grader(engine, store) -> PytestGrader:
    return PytestGrader(engine, store)


@pytest.fixture
def task() -> Task:
    return new_task()
