"""Candidates that share a whole run, and choices that do not hang on durations."""

import json
import random
from dataclasses import replace
from itertools import islice

import pytest
from test_make import candidate

from tadpole.outcome import TestStatus
from tadpole.pilot.choice import Choice
from tadpole.pilot.joint import groups
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.screening import Screening
from tadpole.pilot.symptom import read, steady, told
from tadpole.pilot.trial import Rules, settled
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import ExecReason
from tadpole.repos.snapshot import Baseline
from tadpole.repos.testrun import Failure, TestReport


@pytest.fixture(scope="module")
def candidates(snapshot):
    return list(islice(SingleSite().propose(snapshot, random.Random(2)), 14))


def chosen(snapshot, candidates, rules=Rules()):  # noqa: B008
    """Choices as after a run in which the first test that reaches each edit failed."""
    found = []
    for choice in (Choice(rules, snapshot, one) for one in candidates):
        if choice.reached and len(choice.wanted) > 1:
            choice.after_first(report(choice.wanted, choice.reached[:1]))
            found.append(choice)
    return found


def report(ids, red):
    statuses = {i: TestStatus.FAILED if i in red else TestStatus.PASSED for i in ids}
    return TestReport(statuses, {}, 1, collected=True, finished=True)


def test_a_group_has_no_function_and_no_failing_test_twice(snapshot, candidates):
    found = groups(snapshot, chosen(snapshot, candidates), 3)
    keys = [one.candidate.key for group in found for one in group.choices]
    assert sorted(keys) == sorted({one.candidate.key for one in chosen(snapshot, candidates)})
    assert max(len(group.choices) for group in found) > 1
    for group in found:
        assert len(group.choices) <= 3
        failing = [i for one in group.choices for i in one.failing]
        assert len(failing) == len(set(failing))
        changes = {change.path: change.content for change in group.changes}
        for site in (site for one in group.choices for site in one.candidate.sites):
            assert site.new.encode() in changes[site.path].replace(b"\r\n", b"\n")


def test_a_shared_run_confirms_only_what_each_showed_alone(snapshot, candidates):
    group = next(g for g in groups(snapshot, chosen(snapshot, candidates), 3) if g.choices[1:])
    stable = snapshot.baseline.stable
    red = {i for one in group.choices for i in one.failing}
    first, other = group.choices[:2]
    before = [(one.failing, one.green) for one in group.choices]
    assert group.agrees(report(stable, red))
    assert not group.agrees(report(stable, red - set(other.failing)))
    assert not group.agrees(report(stable, {*red, next(i for i in first.green if i not in red)}))
    assert not group.agrees(report([i for i in stable if i != stable[0]], red))
    skipped = {i: TestStatus.FAILED if i in first.failing else TestStatus.SKIPPED for i in stable}
    assert not first.agrees(replace(report(stable, red), statuses=skipped))
    assert before == [(one.failing, one.green) for one in group.choices]
    assert max(len(half.choices) for half in group.halves(snapshot)) < len(group.choices)


async def test_shared_and_own_whole_runs_find_the_same(snapshot, store, engine, candidates):
    some = candidates[:8]

    async def found(together):
        screening = Screening(store, engine, Rules(together=together))
        screening.expect(snapshot, some)
        verdicts = []
        for one in some:
            try:
                said = await screening.found(snapshot, one)
                verdicts.append((said.failing, said.green))
            except Dropped as drop:
                verdicts.append(drop.reason)
        return verdicts

    shared = await found(4)
    assert sum(isinstance(one, tuple) for one in shared) >= 4
    assert shared == await found(1)


def test_no_choice_hangs_on_durations(snapshot, candidates, tmp_path):
    body = json.loads(snapshot.baseline.file.read_bytes())
    rng = random.Random(1)
    body["seconds"] = [second * 40 ** rng.uniform(-1, 1) for second in body["seconds"]]
    (tmp_path / "baseline.json").write_text(json.dumps(body))
    again = replace(snapshot, baseline=Baseline(tmp_path / "baseline.json", snapshot.baseline.tree))
    few = Rules(most_green=4, sampled=5, of_each=2)
    before, after = (chosen(one, candidates, few) for one in (snapshot, again))
    assert [(one.wanted, one.green) for one in before] == [(one.wanted, one.green) for one in after]
    assert any(len(one.green) == 4 for one in before)


def test_one_test_more_or_less_moves_no_other(snapshot, candidates):
    for one in (Choice(Rules(most_green=3), snapshot, each) for each in candidates):
        passed = [i for i in snapshot.baseline.stable if i not in one.reached]
        whole = one._green(passed)
        for gone in passed:
            less = one._green([i for i in passed if i != gone])
            assert set(whole) - {gone} <= set(less)


def test_of_an_edit_in_several_places_each_keeps_a_test_green(snapshot, candidates):
    stable, reaching = snapshot.baseline.stable, snapshot.baseline.tests_of
    sites = [site for one in candidates for site in one.sites]
    sets = {site: frozenset(reaching(site.path, site.lines)) for site in sites}
    few = min(sites, key=lambda site: len(sets[site]))
    others = [site for site in sites if not sets[site] & sets[few]]
    assert len(sets[few]) == 1 and len(frozenset().union(*(sets[one] for one in others))) > 6
    for other in others:
        both = replace(candidates[0], sites=(other, few, other, replace(few, lines=())))
        green = Choice(Rules(most_green=2), snapshot, both)._green(stable)
        assert len(green) == 2 and sets[few] & set(green) and sets[other] & set(green)
    every = replace(candidates[0], sites=tuple(others))  # more places than tests
    green = Choice(Rules(most_green=2), snapshot, every)._green(stable)
    assert len(green) == 2 and set(green) <= frozenset().union(*(sets[one] for one in others))


async def test_a_limit_of_time_decides_only_when_it_does_so_twice():
    good = report(["a"], [])
    cut, hung = replace(good, reason=ExecReason.TIMEOUT), replace(good, hung=frozenset("a"))

    async def shown(*reports):
        rest = iter(reports)

        async def run():
            return next(rest)

        return await settled(run)

    for first in (cut, hung):
        assert await shown(first, good) is good
        assert await shown(first, hung) is hung
        with pytest.raises(Dropped) as caught:
            await shown(first, cut)
        assert caught.value.reason is DropReason.TOO_SLOW


@pytest.mark.parametrize(
    "tests, seconds, wanted",
    [(2, 0.01, 30), (2, 9.9, 30), (2, 10.1, 120), (60, 0.5, 50), (100, 20, 70), (100, 200, 1120)],
)
def test_a_deadline_follows_the_number_of_tests(tests, seconds, wanted):
    assert Rules().deadline(tests, seconds) == wanted


def test_what_two_runs_do_not_say_alike_is_not_told():
    def failure(message):
        return Failure(message, "t.py", 3, "t.py:3:")

    same = failure("ValueError: <a at 0x7f00aa> in /tmp/pytest-of-agent/pytest-3/x")
    other = failure("ValueError: <a at 0x7f11bb> in /tmp/pytest-of-agent/pytest-12/x")
    assert steady(same, other) == same
    assert told(same) == told(other)
    late = steady(failure("ValueError: at 12:01"), failure("ValueError: at 12:02"))
    assert (told(late).exception, told(late).message) == ("ValueError", "")
    late = steady(failure("assert 12 == 13"), failure("assert 13 == 13"))
    assert told(late).is_assertion and not told(late).message
    late = steady(failure("odd: a\nb\nat 7\nc\nd"), failure("odd: a\nb\nat 8\nc\nd\ne"))
    assert late.message.splitlines() == ["odd: a", "b", "...", "c", "d", "..."]
    late = steady(failure("E.Error: at 7\nwants 3"), failure("E.Error: at 8\nwants 3"))
    assert late.message == "E.Error\nwants 3"
    nothing = steady(failure("Failed: took 7\nassert 7 == 3"), failure("Failed: took 8\nassert 8"))
    assert not replace(told(nothing), snippet="assert found == wanted").tells


async def test_a_failure_of_unittest_is_told_like_any_other(snapshot, store, engine):
    bug = candidate(snapshot, "pond/words.py", "words[:count]", "words[1:count]", "first")
    found = await Screening(store, engine, Rules()).found(snapshot, bug)
    [node_id] = found.failing
    assert node_id == "tests/test_words.py::WordsTest::test_first"
    shown = read(node_id, found.failures[node_id], snapshot.tree)
    assert shown.snippet == 'self.assertEqual(first("a b c", 2), ["a", "b"])'
    assert shown.is_assertion and shown.message
