"""Every proposer on a real library: needs the package index and minutes."""

import random
from collections import Counter
from itertools import islice

import pytest

from tadpole.grading.grader import PytestGrader
from tadpole.pilot import make, taskdir
from tadpole.pilot.diversity import Caps
from tadpole.pilot.proposers.composition import Composition
from tadpole.pilot.proposers.migration import Migration
from tadpole.pilot.proposers.mixed import chosen
from tadpole.pilot.proposers.removal import Removal
from tadpole.pilot.proposers.rename import Rename
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped
from tadpole.progress import Progress
from tadpole.repos.store import Store
from tadpole.settings import TasksConfig
from tadpole.task import TaskKind

SOURCE = "pypi:boltons==26.2.0"


@pytest.fixture(scope="module")
def real(tmp_path_factory, engine):
    return Store(tmp_path_factory.mktemp("real"), engine)


@pytest.mark.slow
@pytest.mark.parametrize("proposer", [Removal(), Composition(), Rename(), Migration()])
async def test_a_proposer_gives_tasks_of_a_real_library(real, engine, proposer):
    snapshot = await real.snapshot(SOURCE)
    validator = Validator(real, engine, PytestGrader(engine, real))
    tried = list(islice(proposer.propose(snapshot, random.Random(0)), 6))
    assert len(tried) == 6
    validator.expect(snapshot, tried)
    kept = []
    for number, candidate in enumerate(tried):
        try:
            kept.append(await validator.validate(snapshot, candidate, f"boltons-{number:04d}"))
        except Dropped:
            continue
    assert len(kept) >= 2


@pytest.mark.slow
async def test_a_mixed_set_has_four_kinds_and_comes_out_the_same(real, engine, tmp_path):
    async def made(name):
        return await make.make_tasks(
            [SOURCE],
            count=20,
            seed=0,
            store=real,
            engine=engine,
            grader=PytestGrader(engine, real),
            out=tmp_path / name,
            progress=Progress(quiet=True),
            proposer=chosen(TasksConfig().weights),
            caps=Caps(kind=0.6),
        )

    tasks = await made("one")
    kinds = Counter(task.kind for task in tasks)
    assert set(kinds) >= {*TaskKind} - {TaskKind.PERFORMANCE}
    assert max(kinds.values()) <= 12
    assert taskdir.load_set(tmp_path / "one") == sorted(tasks, key=lambda task: task.name)
    assert await made("two") == tasks
