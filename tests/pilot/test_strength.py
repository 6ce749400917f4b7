"""Tests are tried on wrong repairs, and a task whose tests notice too few of them is dropped."""

import json
from dataclasses import replace

import pytest
from test_make import candidate

from tadpole.grading.grader import PytestGrader
from tadpole.outcome import Tier
from tadpole.pilot import taskdir
from tadpole.pilot.choice import Choice
from tadpole.pilot.code import Code
from tadpole.pilot.screening import Screening
from tadpole.pilot.strength import mutants_of, strength
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.repos.testrun import Failure


@pytest.fixture
def odd(snapshot):
    """A bug of which the tests of ``scaled`` notice much, but not all."""
    made = candidate(
        snapshot, "pond/shapes.py", "max(size * factor, floor)", "max(size, floor)", "scaled"
    )
    return replace(made, sites=(replace(made.sites[0], lines=(made.sites[0].line,)),))


def test_mutants_are_other_programs_in_the_lines_of_the_bug(snapshot, odd):
    [site] = odd.sites
    buggy = odd.changes[0].content
    found = mutants_of(snapshot, site, buggy, 5)
    assert found == mutants_of(snapshot, site, buggy, 5)
    assert found[:2] == mutants_of(snapshot, site, buggy, 2)
    pristine = (snapshot.tree / site.path).read_bytes()
    dumps = {Code.decode(site.path, text).dump for text in (pristine, buggy)}
    for mutant in found:
        lines = zip(mutant.change.content.splitlines(), pristine.splitlines(), strict=False)
        first = next(n for n, (new, old) in enumerate(lines, start=1) if new != old)
        assert first == site.line
        dumps.add(Code.decode(site.path, mutant.change.content).dump)
    assert len(found) >= 2
    assert len(dumps) == len(found) + 2
    assert len({mutant.operator for mutant in found}) >= 2


@pytest.mark.slow
async def test_a_task_carries_its_kill_rate_and_what_can_be_rewritten(
    snapshot, store, engine, odd, tmp_path
):
    rules = Rules(mutants=3, min_kill_rate=0.0)
    grader = PytestGrader(engine, store, tier=Tier.CHALLENGED)
    task = await Validator(store, engine, grader, rules).validate(snapshot, odd, "pond-0001")
    assert task.measured.mutants == 4
    assert 1 <= task.measured.killed <= 4
    assert task.measured.kill_rate == task.measured.killed / 4
    assert "tests/test_shapes.py::test_scaled" in dict(task.measured.oracles)
    assert task.measured.rewritable == len(task.measured.oracles) / task.measured.functions
    loaded = taskdir.load(taskdir.save(task, tmp_path))
    assert (loaded, loaded.measured) == (task, task.measured)
    plain = replace(task, measured=replace(task.measured, mutants=0, killed=0))
    assert plain.id == task.id  # no part of what a task is
    assert (
        await strength(plain, snapshot, odd.sites, store=store, engine=engine, rules=Rules())
        is plain
    )
    # The tests of the pond look at one floor only: a threshold of 1 is out of reach for some bug.
    again = await strength(plain, snapshot, odd.sites, store=store, engine=engine, rules=rules)
    assert again.measured == task.measured


def test_what_the_screening_tried_is_found(snapshot, odd):
    choice = Choice(Rules(), snapshot, odd)
    choice.failures = {"tests/test_shapes.py::test_scaled": Failure("ValueError")}
    found = choice.found(3, 2)
    assert (found.mutants, found.killed) == (3, 2)


class Listening:
    """An engine whose boxes note which runs of variants they are asked for: seed and number."""

    def __init__(self, engine):
        self.engine, self.asked = engine, []

    async def start(self, spec):
        return Ear(await self.engine.start(spec), self.asked)


class Ear:
    def __init__(self, box, asked):
        self.box, self.asked = box, asked

    def __getattr__(self, name):
        return getattr(self.box, name)

    async def exec(self, argv, *, timeout, stdin=b""):
        if argv[-1].endswith("/forkserver.py"):
            self.asked.append((argv[1], len(json.loads(stdin)["variants"])))
        return await self.box.exec(argv, timeout=timeout, stdin=stdin)


async def test_wrong_repairs_are_dealt_to_the_boxes_that_run(snapshot, store, engine, odd):
    ear = Listening(engine)
    rules = Rules(mutants=4, min_kill_rate=0.0)
    found = await Screening(store, ear, rules).found(snapshot, odd)
    half = found.mutants // 2
    assert found.mutants >= 2 and found.killed <= found.mutants
    assert ("PYTHONHASHSEED=1", 1 + found.mutants - half) in ear.asked
    assert ("PYTHONHASHSEED=2", 1 + half) in ear.asked


async def test_a_task_with_weak_tests_is_dropped(snapshot, store, engine):
    """No test calls ``first`` with a count of one, so a default that is wrong stays unnoticed."""
    weak = candidate(snapshot, "pond/words.py", "words[:count]", "words[count:]", "first")
    line = weak.sites[0].line
    weak = replace(weak, sites=(replace(weak.sites[0], lines=(line,)),))
    grader = PytestGrader(engine, store)
    rules = Rules(mutants=4, min_kill_rate=1.01)  # more than all
    with pytest.raises(Dropped) as caught:
        await Validator(store, engine, grader, rules).validate(snapshot, weak, "pond-0002")
    assert caught.value.reason is DropReason.WEAK
