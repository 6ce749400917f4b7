import asyncio
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import roundmaking

from tadpole import process
from tadpole.errors import UsageError
from tadpole.pilot import taskdir
from tadpole.pilot.diversity import Caps
from tadpole.pilot.journal import COSTS, TABLE, Cost, Step
from tadpole.pilot.likeness import alike, lines_of
from tadpole.pilot.verdict import DropReason
from tadpole.rundir import RunDir

SCRIPT = Path(roundmaking.__file__)


@pytest.fixture(scope="module")
def whole(repository, store, tmp_path_factory):
    """A round that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole")
    asyncio.run(roundmaking.make(repository, store, out))
    return out


async def test_order_of_completion_changes_no_byte(whole, repository, store, tmp_path):
    wanted = roundmaking.contents(whole)
    assert len(taskdir.load_set(whole)) == 14
    for pace in (1, 3):
        out = tmp_path / f"{pace}"
        _, quick = await roundmaking.make(repository, store, out, pace)
        assert roundmaking.contents(out) == wanted
        steps = RunDir(out).rows(TABLE, Step)
        tried = [s for s in steps if s.reason not in (DropReason.ALIKE, DropReason.CAPPED)]
        assert len(tried) <= quick.judged <= len(tried) + 8  # little is judged for nothing


async def test_killed_at_any_moment_it_comes_to_the_same_end(whole, repository, store, tmp_path):
    wanted, out = roundmaking.contents(whole), tmp_path / "out"
    began = time.perf_counter()
    await roundmaking.make(repository, store, tmp_path / "timed", 4)
    length = time.perf_counter() - began
    rng, kills = random.Random(5), 0
    argv = [sys.executable, str(SCRIPT), repository, str(store.cache), str(out), "4"]
    while True:
        cut = [f"{rng.uniform(0.1, 0.6) * length:.3f}"] if kills < 3 else []
        done = process.run([*argv, *cut], timeout=120)
        if done.ok:
            break
        assert done.code in (-signal.SIGKILL, 128 + signal.SIGKILL), done
        kills += 1
    assert kills >= 1
    assert roundmaking.contents(out) == wanted


async def test_a_round_keeps_its_caps_and_holds_nothing_twice(whole):
    tasks = taskdir.load_set(whole)
    assert max(Counter(task.provenance.operator for task in tasks).values()) <= 2  # 0.2 of 14
    assert max(Counter(task.source.location for task in tasks).values()) <= 7
    functions = Counter((t.source.location, t.provenance.edited_functions) for t in tasks)
    assert max(functions.values()) <= 2
    lines = [lines_of(task) for task in tasks]
    assert not any(alike(one, other) for n, one in enumerate(lines) for other in lines[:n])
    reasons = Counter(step.reason for step in RunDir(whole).rows(TABLE, Step))
    assert reasons[DropReason.CAPPED] > 0
    costs = RunDir(whole).rows(COSTS, Cost)
    assert len(costs) == sum(reasons.values())
    assert all(cost.cpu_seconds >= 0 for cost in costs)


async def test_a_later_round_makes_nothing_that_is_like_an_earlier_one(
    whole, repository, store, tmp_path
):
    tasks, _ = await roundmaking.make(repository, store, tmp_path / "2", earlier=[whole])
    before = [lines_of(task) for task in taskdir.load_set(whole)]
    assert tasks
    reasons = Counter(step.reason for step in RunDir(tmp_path / "2").rows(TABLE, Step))
    assert reasons[DropReason.ALIKE] >= 14  # the same proposals come again, and none is run
    assert not any(alike(lines_of(task), lines) for task in tasks for lines in before)
    with pytest.raises(UsageError, match="choose another directory"):
        await roundmaking.make(repository, store, tmp_path / "2")  # without it


async def test_other_caps_are_refused(whole, repository, store):
    with pytest.raises(UsageError, match="another seed, bound, cap"):
        await roundmaking.make_tasks(
            ["pond"],
            count=14,
            seed=3,
            store=roundmaking.Thrice(store, repository),
            engine=None,
            grader=None,
            out=whole,
            progress=roundmaking.Progress.silent(),
            validator=roundmaking.Quick(),
            caps=Caps(function=9),
        )
