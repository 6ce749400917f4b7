"""Tier 3: a right change comes through every draw, and what was not proven is not claimed."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from calc_task import GOOD, ORACLES, PICKY, CountingEngine, new_task, picky_task

from tadpole.errors import SandboxDied
from tadpole.grading.cache import grade_key
from tadpole.grading.challenge import rounds
from tadpole.grading.grader import PytestGrader
from tadpole.grading.variants import Suite, pair
from tadpole.outcome import GradeStatus, Tier
from tadpole.task import FileChange, Measured

NOISE = FileChange("notes.txt", b"thoughts")
KINDS = {**dict.fromkeys("ab", "compared with something else"), **dict.fromkeys("xyz")}


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
    assert engine.starts == 1 + 2 * 2


def test_rounds_are_as_many_as_leave_one_chance_in_eight():
    oracles = {name: [SimpleNamespace(mutate=mutate)] for name, mutate in KINDS.items()}
    suite = SimpleNamespace(oracles=oracles)
    usable = dict.fromkeys(KINDS, 0)
    for names, wanted in (("a", 2), ("x", 3), ("ab", 1), ("ax", 1), ("xy", 2), ("xyz", 1)):
        assert rounds(suite, usable, list(names)) == wanted, names


def test_a_process_that_cannot_tell_the_runs_apart_is_seldom_right_in_both(known, tree):
    """One chance in four for each function that compares, whatever it answers and sees of the
    inversion."""
    suite = Suite.of(known, lambda path: (tree / path).read_bytes())
    name, rng = "tests/test_core.py::TestAdd::test_negative", random.Random(5)
    tricks = {
        "always passes": lambda inverted: True,
        "always fails": lambda inverted: False,
        "by the inversion": lambda inverted: not inverted,
        "by a coin": lambda inverted: rng.random() < 0.5,
    }
    for trick, passes in tricks.items():
        right = 0
        for _ in range(400):
            both = pair(suite, dict(ORACLES), [name], rng)
            answers = [passes(b"is False" in variant.files[0].content) for variant in both]
            right += all(
                answer is not bool(variant.must_fail)
                for answer, variant in zip(answers, both, strict=True)
            )
        assert right / 400 < 0.32, trick


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


def test_the_tiers_do_not_share_their_grades(known):
    assert len({grade_key(known, known.gold, tier) for tier in Tier}) == len(Tier)


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


@pytest.mark.parametrize("others", [(), ("tests/test_core.py::test_plus",)], ids=["alone", "two"])
async def test_what_the_repair_cannot_be_compared_with_speaks_against_no_change(challenger, others):
    task = picky_task("tests/test_core.py::test_sum", *others)
    honest = FileChange("calc/core.py", GOOD.replace(b"2 * a", b"a + a") + PICKY)
    grade = await challenger.grade(task, [honest])
    assert grade.resolved, grade.reason
    # Alone, it depends on the draw whether anything is left; not more is told than was proven.
    proven = [Tier.CHALLENGED] if others else [Tier.CHALLENGED, Tier.HARDENED]
    assert grade.tier in proven
    assert ("tier 1" in grade.reason) == (grade.tier is Tier.HARDENED)
