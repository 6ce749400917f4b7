import pytest

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code
from tadpole.pilot.dictation import dictate
from tadpole.pilot.statement import TOP, ladder
from tadpole.pilot.symptom import Symptom, read, smallest
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


def test_lower_rungs_never_show_the_repair():
    symptom = Symptom("NameError", "name '_limit' is not defined", "", "area(2, 3)")
    texts = told(symptom, old="_limit = 7 + width", new="pass")
    assert "name '_limit' is not defined" in texts[0]  # the file uses that name elsewhere
    symptom = Symptom("NameError", "name 'height' is not defined", "", "area(2, 3)")
    hidden = told(symptom, old="width * height + _limit", new="width + _limit")
    assert "height" in hidden[0]
    only = PRISTINE.replace("width * height", "width * secret(height)")
    site = Site("m.py", only.index("secret(height)"), "secret(height)", "height", 6, ())
    candidate = Candidate("p", "arith_flip", (), ("area",), (site,))
    leak = Symptom("NameError", "secret said no", "secret", "area(2, 3)")
    code = Code.decode("m.py", only.encode())
    hints = ladder("pond", candidate, [leak], code, dictate(code, site))
    assert all("secret" not in hint.text for hint in hints[:TOP])
    assert "`NameError`" in hints[0].text


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
    ],
)
def test_a_failure_is_taken_apart(tree, message, exception, first):
    found = read("test_m.py::test_short", Failure(message, "pond/shapes.py", 3), tree)
    assert (found.exception, found.message) == (exception, first)


def test_the_failing_statement_is_shown_whole(tree):
    text = "test_m.py:12: in test_short\n    assert area(\npond/shapes.py:3: in area\nE   boom"
    found = read("test_m.py::test_short", Failure("boom", "pond/shapes.py", 3, text), tree)
    assert found.snippet == "assert area(\n    2, 3\n) == 6"
