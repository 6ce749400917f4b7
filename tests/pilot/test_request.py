"""Statements of wishes and of composed bugs."""

import pytest

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.request import ladder
from tadpole.pilot.sources import spliced
from tadpole.pilot.symptom import Symptom
from tadpole.task import TaskKind

TEXT = "def area(a, b):\n    return scaled(a) * b\n\n\ndef scaled(a):\n    return 2 * a\n"
SEEN = Symptom("", "assert 5 == 6", "- 5\n+ 6", "assert area(2, 3) == 6")
RAISED = Symptom("TypeError", "no", "", "scaled(1)")


def site(old, new):
    offset = TEXT.index(old)
    line = TEXT.count("\n", 0, offset) + 1
    return Site("pond/m.py", offset, old, new, line, (line,))


def candidate(*sites, **more):
    change = type("Change", (), {"path": "pond/m.py"})()
    return Candidate("p", more.pop("operator", "x"), (change,), ("area",), sites, **more)


def test_a_composed_bug_shows_every_part():
    one = candidate(site("scaled(a) * b", "scaled(a) + b"), operator="arith_flip")
    other = candidate(site("return 2 * a", "return None"), operator="return_none")
    both = candidate(*one.sites, *other.sites, parts=(one, other))
    hints = ladder("pond", both, [SEEN, RAISED])
    assert [hint.rung for hint in hints] == [0, 1, 2, 3, 4, 5]
    assert "2 different things" in hints[0].text
    assert "assert 5 == 6" in hints[0].text and "TypeError: no" in hints[0].text
    assert "area(2, 3)" in hints[1].text and "scaled(1)" in hints[1].text
    assert "area(2, 3)" not in hints[0].text.replace("assert 5 == 6", "")
    assert "lines 2 and 6 of `pond/m.py`" in hints[4].text
    assert "wrong operator" in hints[5].text and "wrong operator" not in hints[4].text


def test_lines_are_those_of_the_files_that_a_solver_reads():
    sites = [
        site("return 2 * a", "return None"),
        site("    return scaled(a) * b\n\n", "    pass\n"),
        Site("pond/other.py", 0, "a", "b", 3, (3,)),
    ]
    start = spliced(TEXT, sites[:2]).splitlines()
    assert [start.index(line) + 1 for line in ("    pass", "    return None")] == [2, 5]
    hints = ladder("pond", candidate(*sites), [SEEN])
    places = "lines 2 and 5 of `pond/m.py`; line 3 of `pond/other.py`"
    assert f"Look near {places}." in hints[-1].text


@pytest.mark.parametrize("kind", [TaskKind.FEATURE, TaskKind.REFACTOR, TaskKind.MIGRATION])
def test_a_wish_comes_first_and_nothing_is_said_twice(kind):
    wish = "Do it in the module `pond/m.py`."
    asked = candidate(site("return 2 * a", "pass"), kind=kind, request=wish)
    hints = ladder("pond", asked, [RAISED])
    assert hints[0].text.startswith(wish) and "TypeError" not in hints[0].text
    assert "scaled(1)" in hints[1].text
    assert ("TypeError" in hints[1].text) == (kind is not TaskKind.FEATURE)
    assert all(hint.text.count("`pond/m.py`") <= 2 for hint in hints)
    assert 2 not in [hint.rung for hint in hints]  # the module is told already
    assert len({hint.text for hint in hints}) == len(hints)


def test_a_human_change_is_told_with_what_is_seen_of_it():
    asked = candidate(site("return 2 * a", "pass"), request="This change is wanted:\n\nDouble it.")
    hints = ladder("pond", asked, [SEEN])
    assert "Double it." in hints[0].text and "assert 5 == 6" in hints[0].text
