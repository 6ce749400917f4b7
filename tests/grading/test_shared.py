"""Gradings that share a box say what those in boxes of their own say."""

import asyncio
import shutil
from dataclasses import replace

import pytest
from calc_task import GOOD, FixedStore, new_task
from test_grader import GRADED, NOISE

from tadpole.grading.grader import PytestGrader
from tadpole.grading.shared import SharedRunner
from tadpole.pilot.gates import gate
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import Limits
from tadpole.task import FileChange


async def test_a_shared_box_grades_as_a_fresh_one(grader, engine, task):
    deltas = {
        "repair": task.gold,
        "nothing": [NOISE],
        "ends itself": [FileChange("calc/core.py", GOOD + b"import os\nos._exit(0)\n")],
        "crashes": [FileChange("calc/core.py", GOOD + b"import os\nos.kill(os.getpid(), 11)\n")],
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
    assert [grade.resolved for grade in shared] == [True, False, False, False, True, True]


async def test_a_repair_is_no_code_that_was_written_at_run_time(grader):
    loads = (
        b"\n\ndef load(text, name):\n    return compile(text, name, 'eval')\n\nload('1', 'a.j2')\n"
    )
    task = new_task(gold=(FileChange("calc/core.py", GOOD + loads),))
    for ours in (grader, grader.trusting):
        grade = await ours.grade(task, task.gold)
        assert (grade.status, grade.resolved) == (GRADED, True), grade.reason


async def test_a_repair_may_import_from_an_archive(grader):
    packs = b"""
import sys, tempfile, zipfile
with tempfile.TemporaryDirectory() as place:
    with zipfile.ZipFile(place + "/one.zip", "w") as archive:
        archive.writestr("packed.py", "ONE = 1\\r\\nTWO = 2")
    sys.path.insert(0, place + "/one.zip")
    __import__("packed")
    del sys.path[0]
"""
    task = new_task(gold=(FileChange("calc/core.py", GOOD + packs),))
    for ours in (grader, grader.trusting):
        grade = await ours.grade(task, task.gold)
        assert (grade.status, grade.resolved) == (GRADED, True), grade.reason


async def test_what_an_earlier_grading_put_back_is_not_new(engine, tree, tmp_path):
    own = shutil.copytree(tree, tmp_path / "tree")
    (own / "calc/loader.py").write_text("def load(*args):\n    return compile(*args, 'exec')\n")
    ours = PytestGrader(engine, FixedStore(own)).trusting
    loads = GOOD + b"\nfrom calc.loader import load\nload('1', 'a.j2')\n"
    task = new_task(gold=(FileChange("calc/core.py", loads),))
    touched = FileChange("calc/loader.py", b"def load(*args): pass\n")
    deltas = [[*task.gold, touched], task.gold, [*task.gold, touched, NOISE], [*task.gold, NOISE]]
    for grade in await asyncio.gather(*(ours.grade(task, delta) for delta in deltas)):
        assert (grade.status, grade.resolved) == (GRADED, True), grade.reason


async def test_what_is_said_to_a_refused_repair_is_kept(grader):
    ends = GOOD + b"import os\nos._exit(0)\n"
    task = new_task(gold=(FileChange("calc/core.py", ends),))
    with pytest.raises(Dropped) as told:
        await gate(task, grader.trusting)
    grade = await grader.grade(task, task.gold)
    assert (told.value.reason, told.value.detail) == (DropReason.UNSOLVED, grade.reason)
    assert grade.reason


@pytest.mark.slow
async def test_a_grading_that_sleeps_ends_by_the_clock(grader):
    sleep = GOOD + b"\n\ndef double(a):\n    import time; time.sleep(1000)\n"
    task = new_task(test_seconds=1.0)
    grade = await grader.trusting.grade(task, [FileChange("calc/core.py", sleep)])
    assert (grade.status, grade.resolved, grade.reason) == (GRADED, False, "timed out")


class Small(FixedStore):
    """Boxes of little memory."""

    async def spec(self, task):
        return replace(await super().spec(task), limits=Limits(memory=400 << 20))


async def test_a_grading_that_fills_the_memory_costs_no_other_one_its_grade(engine, tree, task):
    eater = GOOD + b"held = []\nwhile True: held.append(b'1' * (1 << 23))\n"
    ours = PytestGrader(engine, Small(tree)).trusting
    deltas = [task.gold, [FileChange("calc/core.py", eater)], [*task.gold, NOISE], [NOISE]]
    grades = await asyncio.gather(*(ours.grade(task, delta) for delta in deltas))
    assert {grade.status for grade in grades} == {GRADED}
    assert [grade.resolved for grade in grades] == [True, False, True, False]
    assert grades[1].reason == "ran out of memory"
    assert engine.starts == 4  # the shared one, and one for each that it left over
    assert (await ours.grade(task, [*task.gold, FileChange("more.txt", b"")])).resolved
    assert engine.starts == 5  # a tree that nobody put back is not used again


class SlowEnd:
    """The real engine, whose boxes take their time to end."""

    def __init__(self, engine):
        self.engine = engine

    async def start(self, spec):
        box = await self.engine.start(spec)
        close = box.close

        async def late():
            await asyncio.sleep(2.0)
            await close()

        box.close = late
        return box


async def test_who_asks_while_an_idle_box_ends_has_another(engine, store, task):
    runner = SharedRunner(SlowEnd(engine), store, idle=0.1)
    grader = PytestGrader(engine, store, runner=runner)
    assert (await grader.grade(task, task.gold)).resolved
    await asyncio.sleep(0.5)  # it is ending now
    assert not (await asyncio.wait_for(grader.grade(task, [NOISE]), 60)).resolved
    assert engine.starts == 2


async def test_a_box_that_cannot_start_is_tried_again(grader, engine, task):
    engine.failures.append(OSError("no"))
    assert (await grader.trusting.grade(task, task.gold)).resolved
    assert engine.starts == 2
