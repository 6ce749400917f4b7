import textwrap

import pytest

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code
from tadpole.pilot.dictation import dictate
from tadpole.pilot.statement import TOP, ladder
from tadpole.pilot.symptom import LONGEST_SNIPPET, MOST_LEAD, Symptom, read, smallest
from tadpole.pilot.symptom import told as told_of
from tadpole.repos.testrun import Failure

PRISTINE = '''def area(width, height):
    """The area of a rectangle.
    Negative sides count as zero. Returns a number.
    """
    _limit = 7 + width
    return width * height + _limit - 7 - width
'''
TESTS = """from pond import area


def test_long():
    wanted = 6
    other = 1
    assert wanted == area(2, 3)
    assert area(1, 1) == other


def test_short():
    assert area(
        2, 3
    ) == 6
"""


def told(symptom, old="width * height", new="width // height"):
    offset = PRISTINE.index(old)
    site = Site("pond/shapes.py", offset, old, new, PRISTINE.count("\n", 0, offset) + 1, ())
    candidate = Candidate("p", "arith_flip", (), ("area",), (site,))
    code = Code.decode("pond/shapes.py", PRISTINE.encode())
    return [hint.text for hint in ladder("pond", candidate, [symptom], code, dictate(code, site))]


def test_each_rung_tells_one_thing_more():
    symptom = Symptom("", "assert 5 == 6", "+  where 5 = area(2, 3)", "assert area(2, 3) == 6")
    texts = told(symptom)
    assert len(texts) == TOP + 1
    news = [
        "A check does not hold: `assert 5 == 6`.",
        "+  where 5 = area(2, 3)",
        "in the module `pond/shapes.py`",
        "in `area`. Its purpose: The area of a rectangle.",
        "near line 6",
        "A calculation uses the wrong operator.",
    ]
    for rung, text in enumerate(texts[:TOP]):
        assert [new in text for new in news] == [at <= rung for at in range(len(news))]
    assert texts[TOP].startswith("In `pond/shapes.py` replace `")
    assert "assert" not in texts[TOP]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "test_m.py").write_text(TESTS)
    return tmp_path


def test_the_shortest_test_is_told(tree):
    failures = {
        "test_m.py::test_long": Failure("assert 6 == 5", "test_m.py", 7),
        "test_m.py::test_short": Failure("assert 5 == 6", "test_m.py", 12),
    }
    assert smallest(failures, tree) == "test_m.py::test_short"
    assert smallest(dict(reversed(failures.items())), tree) == "test_m.py::test_short"


@pytest.mark.parametrize(
    "message, exception, first",
    [
        ("assert 5 == 6\n +  where 5 = area(2, 3)", "", "assert 5 == 6"),
        ("AssertionError: 5 != 6", "AssertionError", "5 != 6"),
        ("TypeError: no", "TypeError", "no"),
        ("KeyError", "KeyError", ""),
        ("pond.errors.PondError: dry", "PondError", "dry"),
        ("<Thing at 0x7f00aa> is odd", "", "<Thing at 0x...> is odd"),
        ("", "", ""),
        ("AssertionError: \n  Wanted: 6\nassert 5 == 6", "AssertionError", ""),
    ],
)
def test_a_failure_is_taken_apart(tree, message, exception, first):
    found = read("test_m.py::test_short", Failure(message, "pond/shapes.py", 3), tree)
    assert (found.exception, found.message) == (exception, first)


def test_the_failing_statement_is_shown_whole(tree):
    text = "test_m.py:12: in test_short\n    assert area(\npond/shapes.py:3: in area\nE   boom"
    found = read("test_m.py::test_short", Failure("boom", "pond/shapes.py", 3, text), tree)
    assert found.snippet == "assert area(\n    2, 3\n) == 6"


CALLS = """from pond import area


def test_calls():
    found = area(
        2, 3
    )
    other = found + 1
    with raises(ValueError):
        area(-1)
    assert found == 6
    for side in (1, 2):
        area(side)
        side += 1
"""


@pytest.mark.parametrize(
    "line, first, last",
    [(6, 5, 10), (8, 8, 10), (10, 10, 10), (11, 11, 11), (13, 13, 13)],
)
def test_a_call_that_fails_is_shown_with_the_check_that_follows(tmp_path, line, first, last):
    (tmp_path / "test_m.py").write_text(CALLS)
    found = read("test_m.py::test_calls", Failure("boom", "test_m.py", line), tmp_path)
    lines = CALLS.splitlines()[first - 1 : last]
    assert found.snippet == textwrap.dedent("\n".join(lines))


def test_a_check_too_far_away_is_not_shown(tmp_path):
    between = "    other = 1\n" * LONGEST_SNIPPET
    text = f"def test_calls():\n    found = area(2, 3)\n{between}    assert found == 6\n"
    (tmp_path / "test_m.py").write_text(text)
    found = read("test_m.py::test_calls", Failure("boom", "test_m.py", 2), tmp_path)
    assert found.snippet == "found = area(2, 3)"


def test_a_tests_own_words_leave_room_for_the_comparison():
    words = "".join(f"\n  line {n}" for n in range(30))
    shown = told_of(Failure(f"AssertionError: {words}\nassert 'six' in 'five'\n  + more"))
    assert shown.detail.splitlines() == [
        *(f"line {n}" for n in range(MOST_LEAD)),
        "...",
        "assert 'six' in 'five'",
        "  + more",
    ]


def test_words_of_a_test_are_told_apart_from_the_comparison():
    shown = told_of(Failure("AssertionError: [1] != [2]\n\n- [1]\n+ [2] : code:\nassert x\ny"))
    assert shown.detail.splitlines() == ["- [1]", "+ [2] : code:", "assert x", "y"]
    lines = "\n".join(f"  line {n}" for n in range(MOST_LEAD + 2))
    shown = told_of(Failure(f"ValueError: no\n{lines}\nassert x"))
    assert len(shown.detail.splitlines()) == MOST_LEAD + 3


@pytest.mark.parametrize(
    "message, exception, snippet, tells",
    [
        ("assert 'a' in 'b'", "", "assert wanted in found", True),
        ("", "", "assert wanted in found, words", False),
        ("", "", "assert wanted in found['a'].text", False),
        ("", "", "self.assertIn(wanted, found)", False),
        ("", "", "assert area(2, 3) == found", True),
        ("", "", "assert found == 6", True),
        ("", "", "self.assertTrue(found)", True),
        ("", "", "assert not found", True),
        ("nothing fits", "AssertionError", "assert False, 'nothing fits'", False),
        ("...", "AssertionError", "assert wanted == found", False),
        ("", "", "assert list(wanted) == sorted(found.items())", False),
        ("", "", "assert await area(2, 3) == found", True),
        ("", "", "self.assertTrue(wanted == found)", False),
        ("", "", "self.assertEqual(wanted, found, 'the same')", False),
        ("", "", "self.assertEqual(wanted, 3)", True),
        ("", "", "check(found)", False),
        ("", "", "found = 3", False),
        ("3 != 4", "AssertionError", "check(found)", True),
        ("nothing fits", "", "pytest.fail(f'nothing fits {found}')", False),
        ("nothing fits", "AssertionError", "raise AssertionError('nothing fits')", False),
        ("no", "AssertionError", "raise AssertionError('no')\nassert found == 6", False),
        ("", "AssertionError", "check(found)\nassert found == 6", False),
        ("", "TypeError", "", True),
        ("", "", "", False),
        ("1 != 2", "AssertionError", "with raises(", True),
    ],
)
def test_a_check_of_two_names_tells_nothing_without_their_values(
    message, exception, snippet, tells
):
    assert Symptom(exception, message, "", snippet).tells is tells
