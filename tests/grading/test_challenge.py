"""Tier 3: a right change comes through every draw, and what was not proven is not claimed."""

from dataclasses import replace

import pytest
from calc_task import GOOD, ORACLES, CountingEngine, new_task

from tadpole.errors import SandboxDied
from tadpole.grading.grader import PytestGrader
from tadpole.outcome import GradeStatus, Tier
from tadpole.task import FileChange, Measured

NOISE = FileChange("notes.txt", b"thoughts")


@pytest.fixture
def known():
    """The task with what its making found out."""
    return new_task(measured=Measured(functions=5, oracles=ORACLES))


@pytest.fixture
def challenger(engine, store):
    return PytestGrader(engine, store, tier=Tier.CHALLENGED)


@pytest.mark.slow
async def test_gold_comes_through_every_draw(store, known):
    for _ in range(5):
        engine = CountingEngine()
        grade = await PytestGrader(engine, store, tier=Tier.CHALLENGED).grade(known, known.gold)
        assert (grade.resolved, grade.tier) == (True, Tier.CHALLENGED), grade
        assert engine.starts == 3  # the real tests and a pair


async def test_other_right_changes_come_through(challenger, engine, known):
    other = b"import operator\nadd = operator.add\ndef double(a): return add(a, a)\n"
    grade = await challenger.grade(known, [FileChange("calc/core.py", other)])
    assert (grade.resolved, grade.tier) == (True, Tier.CHALLENGED), grade
    assert engine.starts == 3  # the real tests and a pair


async def test_a_change_that_fails_costs_one_run(challenger, engine, known):
    grade = await challenger.grade(known, [NOISE])
    assert (grade.failing, grade.tier) == (known.fail_to_pass, Tier.CHALLENGED)
    assert engine.starts == 1


@pytest.mark.slow
async def test_one_function_is_asked_more_often(challenger, engine, known):
    one = replace(known, fail_to_pass=("tests/test_core.py::TestAdd::test_negative",))
    assert (await challenger.grade(one, one.gold)).resolved
    assert engine.starts == 1 + 2 * 3


@pytest.mark.slow
async def test_what_works_is_found_with_the_gold_and_once(challenger, engine, task):
    found = await challenger.oracles(task)
    assert set(found) == {"tests/test_classic.py::Classic::test_double", *dict(ORACLES)}
    before = engine.starts
    assert await challenger.oracles(task) == found
    assert (await challenger.grade(task, task.gold)).resolved
    assert engine.starts == before + 3


async def test_a_test_that_cannot_be_rewritten_is_left_out(challenger, task):
    sees = b"""import inspect
from calc import core

def test_sees():
    assert core.add(1, 1) == 2
    assert inspect.getsource(test_sees).count("==") == 2

def test_calls():
    if core.add(1, 1) != 2:
        raise ValueError
"""
    task = replace(
        task,
        hidden=(FileChange("tests/test_core.py", sees),),
        fail_to_pass=("tests/test_core.py::test_sees", "tests/test_core.py::test_calls"),
        pass_to_pass=("tests/test_classic.py::Classic::test_double",),
    )
    found = await challenger.oracles(task)
    assert "tests/test_core.py::test_calls" not in found
    only = replace(
        task,
        fail_to_pass=("tests/test_core.py::test_calls",),
        measured=Measured(functions=2, oracles=tuple(found.items())),
    )
    grade = await challenger.grade(only, only.gold)
    assert (grade.resolved, grade.tier) == (True, Tier.HARDENED)  # not more than was proven
    assert "tier 1" in grade.reason


async def test_the_check_that_the_bug_breaks_is_the_one_that_is_rewritten(challenger, task):
    """Whoever has not repaired it knows how the other checks should end."""
    two = b"from calc import core\n\ndef test_two():\n    assert core.double(1) == 2\n"
    two += b"    assert core.add(1, 1) == 2\n"
    task = replace(
        task,
        hidden=(FileChange("tests/test_core.py", two),),
        fail_to_pass=("tests/test_core.py::test_two", "tests/test_classic.py::Classic::test_add"),
        pass_to_pass=(),
    )
    assert await challenger.oracles(task) == {
        "tests/test_core.py::test_two": 1,
        "tests/test_classic.py::Classic::test_add": 0,
    }


async def test_a_tier_1_grader_rewrites_nothing(grader, task):
    assert await grader.oracles(task) is None
    assert (await grader.grade(task, task.gold)).tier is Tier.HARDENED


async def test_the_tiers_do_not_share_their_grades(store, known, tmp_path):
    for tier, boxes in ((Tier.HARDENED, 1), (Tier.CHALLENGED, 3), (Tier.HARDENED, 0)):
        engine = CountingEngine()
        grader = PytestGrader(engine, store, tier=tier, cache_dir=tmp_path)
        assert (await grader.grade(known, known.gold)).tier is tier
        assert engine.starts == boxes


@pytest.mark.slow
async def test_a_variant_that_hangs_is_no_proof(engine, store, known):
    spin = GOOD + b"while b'bool(' in open('/repo/tests/test_core.py', 'rb').read(): pass\n"
    task = replace(known, test_seconds=2.0)
    grader = PytestGrader(engine, store, tier=Tier.CHALLENGED)
    grade = await grader.grade(task, [FileChange("calc/core.py", spin)])
    assert (grade.status, grade.resolved) == (GradeStatus.GRADED, False), grade
    assert "timed out" in grade.reason


@pytest.mark.slow
async def test_infrastructure_in_a_variant_is_tried_again(store, known):
    class Second(CountingEngine):
        async def start(self, spec):
            if self.starts == 1:
                self.failures.append(SandboxDied("gone"))
            return await super().start(spec)

    engine = Second()
    grade = await PytestGrader(engine, store, tier=Tier.CHALLENGED).grade(known, known.gold)
    assert grade.resolved, grade
