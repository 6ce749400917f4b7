"""Rounds through the real validator: the same bytes from fresh caches, and flaky tests."""

import pond
import pytest
from roundmaking import contents

from tadpole import process
from tadpole.grading.grader import PytestGrader
from tadpole.pilot.journal import TABLE, Step
from tadpole.pilot.make import make_tasks
from tadpole.pilot.trial import Rules
from tadpole.pilot.verdict import DropReason
from tadpole.progress import Progress
from tadpole.repos.store import Store
from tadpole.rundir import RunDir

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
FLAKY = '''"""Tests that run everything, check nothing, and fail one time in fifty."""

import os

import pytest

from pond import shapes, words


@pytest.mark.parametrize("number", range(10))
def test_sometimes(number):
    for call in (
        lambda: shapes.area(2, 3),
        lambda: shapes.perimeter(2, 3),
        lambda: shapes.scaled([1, None], 2),
        lambda: shapes.Square(2).grow(),
        lambda: words.first("a b", 1),
        lambda: words.shout("a", twice=True),
        lambda: words.clean(" a "),
        lambda: words.outer([1], [2]),
    ):
        try:
            call()
        except Exception:
            pass
    assert int.from_bytes(os.urandom(4), "big") >= 0.02 * 2**32
'''


async def made(source, store, engine, out, count, **rules):
    return await make_tasks(
        [source],
        count=count,
        seed=0,
        store=store,
        engine=engine,
        grader=PytestGrader(engine, store),
        out=out,
        progress=Progress.silent(),
        rules=Rules(**rules),
    )


@pytest.mark.slow
async def test_fresh_caches_give_the_same_bytes(repository, engine, tmp_path):
    found = []
    for name in ("one", "two"):
        store = Store(tmp_path / name / "cache", engine, pond.LocalPip())
        tasks = await made(repository, store, engine, tmp_path / name / "tasks", 4)
        assert len(tasks) == 4
        found.append(contents(tmp_path / name / "tasks"))
    assert found[0] == found[1]


@pytest.mark.slow
async def test_a_test_that_fails_one_time_in_fifty_is_never_hidden(engine, tmp_path):
    """Ten of them, so that in nearly every validation some fail: all three runs must agree."""
    root = pond.build(tmp_path / "flaky")
    (root / "tests" / "test_sometimes.py").write_text(FLAKY)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        assert process.run([*GIT, "-C", str(root), *words], timeout=30).ok
    store = Store(tmp_path / "cache", engine, pond.LocalPip())
    out = tmp_path / "tasks"
    tasks = await made(str(root), store, engine, out, 99)
    steps = RunDir(out).rows(TABLE, Step)
    reasons = [step.reason for step in steps]
    assert len(tasks) >= 3 and reasons.count(DropReason.UNSTABLE) >= 1  # they did strike
    hidden = [i for task in tasks for i in task.fail_to_pass]
    assert hidden and not [i for i in hidden if "sometimes" in i]
