"""Gradings that share a box say what those in boxes of their own say."""

import asyncio

import pytest
from calc_task import GOOD
from test_grader import GRADED, NOISE

from tadpole.task import FileChange


async def test_a_shared_box_grades_as_a_fresh_one(grader, engine, task):
    deltas = {
        "repair": task.gold,
        "nothing": [NOISE],
        "ends itself": [FileChange("calc/core.py", GOOD + b"import os\nos._exit(0)\n")],
        "configured": [
            *task.gold,
            FileChange("pyproject.toml", b"[tool.pytest.ini_options]\naddopts = '-k nothing'\n"),
        ],
        "repair again": [*task.gold, NOISE],
    }
    ours = grader.trusting
    assert ours is grader.trusting
    shared = await asyncio.gather(*(ours.grade(task, delta) for delta in deltas.values()))
    assert engine.starts == 1
    for name, delta, found in zip(deltas, deltas.values(), shared, strict=True):
        fresh = await grader.grade(task, delta)
        assert (found.status, found.resolved) == (fresh.status, fresh.resolved), name
        assert (found.failing, found.reason) == (fresh.failing, fresh.reason), name
    assert {grade.status for grade in shared} == {GRADED}
    assert [grade.resolved for grade in shared] == [True, False, False, True, True]


@pytest.mark.slow
async def test_a_box_that_idles_ends_and_the_next_grading_has_another(grader, engine, task):
    ours = grader.trusting
    assert (await ours.grade(task, task.gold)).resolved
    [bench] = ours._runner._benches[asyncio.get_running_loop()].values()
    await asyncio.wait_for(bench.serving, 20)
    assert not (await ours.grade(task, [NOISE])).resolved
    assert engine.starts == 2


async def test_a_box_that_cannot_start_is_tried_again(grader, engine, task):
    engine.failures.append(OSError("no"))
    assert (await grader.trusting.grade(task, task.gold)).resolved
    assert engine.starts == 2
