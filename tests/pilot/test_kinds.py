"""Candidates of every proposer go through the very same ladder and gates, on real runs."""

import random
from dataclasses import replace

import pytest

from tadpole.grading.grader import PytestGrader
from tadpole.pilot import taskdir
from tadpole.pilot.gates import NO_OP, changes
from tadpole.pilot.proposers.composition import compose
from tadpole.pilot.proposers.history import History
from tadpole.pilot.proposers.migration import Migration
from tadpole.pilot.proposers.removal import GROUP, Removal
from tadpole.pilot.proposers.rename import Rename
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.sources import Sources
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.task import TaskKind


@pytest.fixture(scope="module")
def grader(engine, store):
    return PytestGrader(engine, store)


@pytest.fixture(scope="module")
def validator(store, engine, grader):
    return Validator(store, engine, grader)


def pick(proposer, snapshot, *functions, operator=None):
    """The candidate that edits exactly these functions."""
    for seed in range(9):
        for candidate in proposer.propose(snapshot, random.Random(seed)):
            if candidate.functions == functions and operator in (None, candidate.operator):
                return candidate
    raise AssertionError(f"no candidate for {functions}")


async def check(task, snapshot, grader):
    """What holds for every task, whoever proposed it."""
    pristine = {c.path: (snapshot.tree / c.path).read_bytes() for c in task.gold}
    assert {c.path: c.content for c in task.gold} == pristine
    assert not set(task.fail_to_pass) & set(task.pass_to_pass)
    start = {c.path: c.content.decode() for c in task.start}
    for node_id in task.fail_to_pass:
        path, _, name = node_id.partition("::")
        assert f"def {name.partition('[')[0]}(" not in start[path]
    assert [hint.rung for hint in task.hints][-1] == task.rung
    texts = [hint.text for hint in task.hints]
    assert len(set(texts)) == len(texts)
    assert list(changes(task))[1][0] is NO_OP
    for delta, wanted, _ in changes(task):
        assert (await grader.grade(task, delta)).resolved == wanted


async def test_a_composed_bug_needs_every_part_repaired(brook, validator, grader, tmp_path):
    flip = pick(SingleSite(per_function=99), brook, "Tally.add_thing", operator="cmp_boundary")
    drop = pick(SingleSite(per_function=99), brook, "initials", operator="const_change")
    [one], [other] = flip.sites, drop.sites
    both = compose(Sources(brook), [flip, drop], 1)
    task = await validator.validate(brook, both, "brook-0001")
    await check(task, brook, grader)
    assert task.kind is TaskKind.BUG_FIX
    assert task.provenance.operator == "cmp_boundary+const_change"
    start = {c.path: c for c in task.start}
    for site in (one, other):  # half a repair is none
        half = next(c for c in task.gold if c.path == site.path)
        assert half.content != start[site.path].content
        assert not (await grader.grade(task, (half,))).resolved
    assert "2 different things" in task.hints[0].text
    assert "`Tally.add_thing`, `initials`" in task.hints[-1].text
    assert taskdir.load(taskdir.save(task, tmp_path)) == task


@pytest.mark.slow
async def test_a_part_that_no_test_notices_is_no_part(brook, validator):
    bug = pick(SingleSite(per_function=99), brook, "initials", operator="const_change")
    quiet = pick(SingleSite(per_function=99), brook, "Tally.ranking", operator="cmp_boundary")
    whole = compose(Sources(brook), [bug, quiet], 1)
    with pytest.raises(Dropped) as caught:
        await validator.validate(brook, whole, "brook-x")
    assert caught.value.reason is DropReason.PART_IDLE


async def test_what_a_person_changed_is_asked_for_in_their_words(brook, validator, grader):
    fix = pick(History(), brook, "slug")
    task = await validator.validate(brook, fix, "brook-0002")
    await check(task, brook, grader)
    assert "never end a slug with a hyphen" in task.hints[0].text
    assert task.provenance.origin == fix.origin
    assert fix.origin[:7] not in "".join(hint.text for hint in task.hints)
    assert task.fail_to_pass == ("tests/test_text.py::test_slug_is_cut",)


async def test_few_words_of_a_person_come_with_what_the_tests_ask_for(brook, validator):
    added = pick(History(), brook, "Tally.ranking")
    assert added.kind is TaskKind.FEATURE and "Add ties" in added.request
    task = await validator.validate(brook, added, "brook-0006")
    assert task.hints[0].rung == 1
    assert 'Tally("ba").ranking()' in task.hints[0].text
    with pytest.raises(Dropped) as caught:
        await validator.validate(brook, replace(added, request=""), "brook-x")
    assert caught.value.reason is DropReason.NO_STATEMENT


async def test_a_repair_of_which_a_person_says_nothing_is_told_by_what_is_seen(brook, validator):
    fix = replace(pick(History(), brook, "slug"), request="")
    assert len(fix.sites) == 1
    task = await validator.validate(brook, fix, "brook-0007")
    assert task.hints[0].text.startswith("Something in brook is broken.")


@pytest.mark.slow
@pytest.mark.parametrize(
    "proposer, functions, operator, kind",
    [
        (Removal(), ("slug", "_lowered", "_words"), GROUP, TaskKind.FEATURE),
        (Rename(), ("Tally.add_thing",), None, TaskKind.REFACTOR),
    ],
)
async def test_features_and_refactorings(
    brook, validator, grader, proposer, functions, operator, kind
):
    candidate = pick(proposer, brook, *functions, operator=operator)
    task = await validator.validate(brook, candidate, "brook-0003")
    await check(task, brook, grader)
    assert task.kind is kind
    assert task.hints[0].text.startswith(candidate.request)


@pytest.mark.slow
async def test_a_migration(brook, validator, grader):
    for candidate in Migration().propose(brook, random.Random(0)):
        task = await validator.validate(brook, candidate, "brook-0004")
        await check(task, brook, grader)
        assert task.kind is TaskKind.MIGRATION


@pytest.mark.slow
async def test_strength_is_measured_over_all_sites(brook, store, engine, grader):
    rules = Rules(mutants=4, min_kill_rate=0.0)
    fix = pick(Rename(), brook, "Tally.add_thing")
    task = await Validator(store, engine, grader, rules).validate(brook, fix, "brook-0005")
    assert task.measured.mutants == 5
