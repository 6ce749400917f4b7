"""Leak and sufficiency: what a statement and a tree may tell, and what they must."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_taskdir import new_task

from tadpole.pilot import admission, leak, sufficiency
from tadpole.pilot.added import lines_of, stretches
from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code
from tadpole.pilot.proof import SHORTEST
from tadpole.pilot.symptom import Symptom
from tadpole.task import FileChange, Hint, TaskKind

PRISTINE = b'''"""A module."""


def total(items):
    found = 0
    for item in items:
        found += item.price * item.count
    return found


class Till:
    """Counts money."""

    def open(self):
        return self.key == 77
'''
BUGGY = PRISTINE.replace(b"item.price * item.count", b"item.price")
TEST = b"""from shop import total


def test_total(cart):
    cart.add(3, 2)
    assert total(cart) == 6
"""


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "tests").mkdir(parents=True)
    (root / "shop.py").write_bytes(PRISTINE)
    (root / "tests/test_shop.py").write_bytes(TEST)
    return root


START = {"shop.py": BUGGY, "tests/test_shop.py": b"from shop import total\n"}
HIDDEN = (FileChange("tests/test_shop.py", TEST),)
IDS = ("tests/test_shop.py::test_total",)


def found(tree):
    leak._texts.cache_clear()  # the tests change a tree; real ones never change
    return leak.in_tree(tree, START, {"shop.py": PRISTINE}, HIDDEN, IDS)


def test_a_tree_without_a_copy_holds_no_answer(tree):
    assert found(tree) == ""


@pytest.mark.parametrize(
    "path, content",
    [
        ("build/lib/shop.py", PRISTINE),
        ("shop.py.orig", PRISTINE.replace(b"\n", b"\r\n")),
        ("docs/changes.txt", b"as below\n\n" + PRISTINE.replace(b"    ", b"\t")),
        ("old/test_copy.py", b"import x\n\n" + TEST),
    ],
)
def test_a_copy_of_the_answer_is_found(tree, path, content):
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_bytes(content)
    assert found(tree) == path


def test_one_equal_line_elsewhere_is_no_copy(tree):
    (tree / "other.py").write_bytes(b"def f(item):\n    found += item.price * item.count\n")
    assert found(tree) == ""


def test_a_copy_in_the_environment_is_found(tmp_path):
    place = tmp_path / "lib/python3.11/site-packages/pkg"
    place.mkdir(parents=True)
    (place / "a.py").write_text("")
    assert leak.installed(tmp_path, ["src/pkg/a.py"], ["src"]).endswith("site-packages/pkg/a.py")
    assert leak.installed(tmp_path, ["pkg/b.py"], ["."]) == ""


def test_a_signature_may_be_told_and_a_line_of_the_body_may_not():
    new = (
        BUGGY
        + b'\n\ndef mean(items, default=0):\n    """The mean of all."""\n    return a / b + c\n'
    )
    quotes = [
        ("def mean(items, default=0):", ""),
        ("The mean of all.", ""),
        ("Use `return  a / b\n + c` there", "return a / b + c"),
    ]
    for text, line in quotes:
        assert leak.in_statement(text, {"shop.py": BUGGY}, {"shop.py": new}) == line


def chosen(statement, body, test, tree):
    solved = {"shop.py": PRISTINE + body}
    tests = [FileChange("tests/test_new.py", test)]
    return sufficiency.untold(statement, tree, {"shop.py": PRISTINE}, solved, tests)


@pytest.mark.parametrize(
    "test, statement, missing",
    [
        (b"import shop\nshop.refund(3)", "Add refund.", ()),
        (b"import shop\nshop.refund(3)", "Add a way back.", ("refund",)),
        (b"from shop import refund as back", "Something", ("refund",)),
        (b"import shop\nassert shop.total([]) == 4711", "Something", ("4711",)),
        (b"import shop\nassert shop.total([]) == 4711", "At most 4711 of them.", ()),
        (b"assert x == 'too many of them'", "Something", ("too many of them",)),
        (b"assert x == 'too many of them'", 'It says "too many of them".', ()),
        (b"assert total == 'Counts money.'", "The repository knows it.", ()),
        (b"with pytest.raises(ValueError): f()", "Something", ("ValueError",)),
        (b"with pytest.raises(ValueError): f()", "It raises ValueError.", ()),
        (b"with pytest.raises(KeyError): f()", "No part of the solution.", ()),
        (b"def refund(): pass\nrefund()", "The test's own.", ()),
        (b"import warnings\nwarnings.warn('x')", "Everybody knows the module.", ()),
        (b"import decimal as warnings\nfrom warnings import warn", "So it does.", ()),
        (b"import shop\nshop.warnings", "A name of the solution's own.", ("warnings",)),
        (b"from collections import Counter\ntype(x) is Counter", "What for?", ("Counter",)),
        (b"import collections\ntype(x) is collections.Counter", "What for?", ("Counter",)),
        (b"from importlib import metadata\nmetadata.version('x')", "All know it.", ()),
        (b"import importlib.metadata\nimportlib.metadata.version('x')", "All know it.", ()),
        (b"import warnings\nshop.Till().warnings()", "One is new.", ("warnings",)),
        (b"import warnings\nshop.total([], warnings=1)", "One is new.", ("warnings",)),
        (b"def test(metadata): metadata", "The test chose it.", ()),
        (b"try: f()\nexcept E as metadata: print(metadata)", "The test chose it.", ()),
        (b"from shop import Till as metadata\nmetadata()", "The test chose it.", ()),
    ],
)
def test_what_only_the_solution_chose_must_be_told(tree, test, statement, missing):
    body = b"""

def refund(items):
    import warnings
    from collections import Counter
    from importlib import metadata
    if len(items) > 4711:
        raise ValueError("too many of them")
"""
    assert chosen(statement, body, test, tree) == missing


def test_a_name_that_the_bug_took_away_is_not_known(tree):
    """The pristine file is no part of what a solver reads."""
    start = {"shop.py": PRISTINE.replace(b"def total", b"def sum_up")}
    tests = [FileChange("tests/test_new.py", b"import shop\nshop.Till().key == 77")]
    gone = {
        "shop.py": start["shop.py"].replace(b"self.key == 77", b"None"),
        "tests/test_shop.py": b"",
    }
    missing = sufficiency.untold("It is closed.", tree, gone, start, tests)
    assert set(missing) == {"key", "77"}


def told(message, exception="", snippet=""):
    return Symptom(exception, message, "", snippet)


def candidate(name, **changed):
    site = Site("shop.py", 0, "a", "b", 5, (5,))
    parts = {"changes": (), "functions": (name,), "sites": (site,), **changed}
    return Candidate("p", "arith_flip", **parts)


def test_code_is_documented_by_itself_by_its_class_or_by_a_guide(tree):
    code = Code.decode("shop.py", PRISTINE)
    sufficiency._guides.cache_clear()
    sufficiency._files.cache_clear()
    assert sufficiency.documented(tree, code, ["Till.open"])
    assert not sufficiency.documented(tree, code, ["total"])
    (tree / "README.md").write_text("Then `shop.total` says how much it is.")
    sufficiency._guides.cache_clear()
    sufficiency._files.cache_clear()
    assert sufficiency.documented(tree, code, ["total"])


@pytest.mark.parametrize(
    "docstring, says",
    [
        ("TODO: docstring in public method.", False),
        ("FIXME", False),
        (" (missing docstring)", False),
        ("Document me!", False),
        ("To-do lists, sorted.", False),  # a note as far as anybody can tell
        ("Todos of a list, sorted.", True),
        ("No documents are lost.", True),
        ("No doc is indexed twice.", True),
        ("Document this value in the schema.", True),
        ("TODO: quicker.\n\n    The sum of all prices.", True),
    ],
)
def test_a_note_that_a_docstring_is_missing_documents_nothing(tree, docstring, says):
    text = f'def total(items):\n    """{docstring}"""\n    return 3\n'
    text += f'\n\nclass Till:\n    """{docstring}"""\n\n    def open(self):\n        return 4\n'
    code = Code.decode("shop.py", text.encode())
    assert bool(code.functions[0].docstring) is says
    assert len(code.functions[0].body) == 1
    sufficiency._guides.cache_clear()
    sufficiency._files.cache_clear()
    assert sufficiency.documented(tree, code, ["total", "Till.open"]) is says


def rungs(tree, failing, shown, documented=False, hints=(0, 1, 4, 6)):
    task = new_task(
        start=(FileChange("shop.py", BUGGY),),
        gold=(FileChange("shop.py", PRISTINE),),
        hidden=HIDDEN,
        fail_to_pass=IDS,
        hints=tuple(Hint(rung, f"rung {rung}") for rung in hints),
    )
    found = admission.admitted(task, tree, documented=documented, told=shown, failing=failing)
    return [hint.rung for hint in found]


ONE, OTHER = told("assert 3 == 6", "", "assert total(c) == 6"), told("assert 1 == 2", "", "x")
SILENT = told("", "AssertionError", "assert wanted in found")
CRASH = told("no price", "AttributeError", "total(c)")


@pytest.mark.parametrize(
    "failing, shown, documented, wanted",
    [
        ({"a": [ONE]}, [ONE], False, [1, 4, 6]),  # rung 0 does not say which call
        ({"a": [ONE], "b": [OTHER]}, [ONE], False, [6]),
        ({"a": [ONE], "b": [OTHER]}, [ONE, OTHER], False, [1, 4, 6]),
        ({"a": [ONE], "b": [OTHER]}, [ONE], True, [0, 1, 4, 6]),
        ({"a": [CRASH], "b": [replace(CRASH, snippet="y")]}, [CRASH], False, [0, 1, 4, 6]),
        ({"a": [CRASH], "b": [OTHER]}, [CRASH], False, [6]),
        ({"a": [ONE, OTHER]}, [ONE], False, [1, 4, 6]),  # parameter sets of one test
        ({"a": [SILENT]}, [SILENT], False, [6]),  # nobody says what was wanted
        ({"a": [SILENT]}, [SILENT], True, [0, 1, 4, 6]),
    ],
)
def test_rungs_that_leave_out_what_is_asked_for_are_not_given(
    tree, failing, shown, documented, wanted
):
    assert rungs(tree, failing, shown, documented) == wanted
    without = rungs(tree, failing, shown, documented, hints=(0, 1, 4))
    assert without == [rung for rung in wanted if rung != 6]


def naming(tree, test, body, texts, **changed):
    """What is given of rungs with these texts, where a repair brings ``body`` back."""
    pristine = PRISTINE + body
    task = new_task(
        start=(FileChange("shop.py", PRISTINE),),
        gold=(FileChange("shop.py", pristine),),
        hidden=(FileChange("tests/test_shop.py", test),),
        fail_to_pass=IDS,
        hints=tuple(Hint(rung, text) for rung, text in enumerate(texts)),
    )
    found = admission.admitted(task, tree, documented=True, told=[], failing={})
    return [(hint.rung, hint.text) for hint in found]


REFUND = b"""

def refund(items):
    if items > 4711:
        raise ValueError("too many of them")
"""
ASKS = b"""def test_total(cart):
    with pytest.raises(ValueError, match="too many of them"):
        shop.refund(cart)
"""


def test_what_the_tests_ask_for_is_told_where_no_rung_tells_it(tree):
    named = "\n\nThe tests ask for "
    assert naming(tree, ASKS, REFUND, ["Pay.", "Pay back, ValueError else."]) == [
        (0, f"Pay.{named}`ValueError`, `refund`, `'too many of them'`."),
        (1, f"Pay back, ValueError else.{named}`refund`, `'too many of them'`."),
    ]
    told = 'A refund of "too many of them" is a ValueError.'
    assert naming(tree, ASKS, REFUND, ["Pay.", told]) == [(1, told)]


def test_many_names_or_a_line_of_the_repair_are_not_told(tree):
    names = [f"name_{n}" for n in range(admission.MOST_NAMED + 1)]
    body = "\n".join(f"def {name}(): pass" for name in names).encode()
    asks = b"def test_total(): shop." + "; shop.".join(names).encode()
    assert naming(tree, asks, body, ["Pay."]) == []
    assert len(naming(tree, asks, body, [f"Pay with {names[0]}."])) == 1
    long = "x" * (admission.LONGEST_NAMED + 1)
    body = f"\n\ndef both():\n    return {long!r}\n".encode()
    asks = f"def test_total(): assert source == {long!r}".encode()
    assert naming(tree, asks, body, ["Pay."]) == []
    quote = "return first + second  # of all items"
    asks = f"def test_total(): assert source == {quote!r}".encode()
    assert naming(tree, asks, f"\n\ndef both():\n    {quote}\n".encode(), ["Pay."]) == []


def test_failures_of_undocumented_code_are_told_one_by_one(tree):
    codes = {"shop.py": Code.decode("shop.py", PRISTINE)}
    sufficiency._guides.cache_clear()
    sufficiency._files.cache_clear()
    failing = {f"t{n}": [told(f"assert {n}")] for n in range(20)} | {"first": [ONE, OTHER]}
    more = admission.others(candidate("total"), codes, tree, [ONE], failing)
    assert len(more) == admission.MOST_TOLD and ONE not in more and OTHER not in more
    assert admission.others(candidate("Till.open"), codes, tree, [ONE], failing) == []
    silent = {"t": [SILENT, ONE]}  # of a test's parameter sets one that says what is wanted
    assert admission.others(candidate("total"), codes, tree, [SILENT], silent) == [ONE]
    asked = candidate("total", kind=TaskKind.FEATURE, request="Write it.")
    assert admission.others(asked, codes, tree, [ONE], failing) == more  # to be written
    renamed = replace(asked, kind=TaskKind.REFACTOR)
    assert admission.others(renamed, codes, tree, [ONE], failing) == []


@pytest.mark.parametrize(
    "words, start, wanted",
    [
        ("Open it.", PRISTINE, False),
        ("x" * SHORTEST, PRISTINE, True),
        ("x" * SHORTEST, PRISTINE.replace(b'"""Counts money."""', b"x = 1"), False),
        ("x" * SHORTEST, b"no python", False),
    ],
)
def test_words_of_a_commit_specify_only_what_is_documented_at_the_start(tree, words, start, wanted):
    codes = {"shop.py": Code.decode("shop.py", PRISTINE)}
    sufficiency._guides.cache_clear()
    sufficiency._files.cache_clear()
    made = candidate("Till.open", kind=TaskKind.FEATURE, request=words)
    changes = (FileChange("shop.py", start),)
    assert admission.known(made, codes, tree)
    asked = replace(made, origin="a" * 40, changes=changes)
    assert admission.known(asked, codes, tree) is wanted
    bug = replace(asked, kind=TaskKind.BUG_FIX)
    assert admission.known(bug, codes, tree) is wanted


LINES = st.lists(st.sampled_from(["", "a", "b", "    c", "d = 1"]), max_size=8)


@given(LINES, LINES)
@settings(max_examples=200, deadline=None)
def test_what_a_change_adds_is_where_it_says(old, new):
    """Lines outside of the stretches are in the old text too, in the same order."""
    before, after = ("\n".join(lines).encode() for lines in (old, new))
    lines = lines_of(after)
    kept = list(lines)
    for one in reversed(stretches(before, after)):
        assert tuple(lines[one.first - 1 : one.first - 1 + len(one.lines)]) == one.lines
        del kept[one.first - 1 : one.first - 1 + len(one.lines)]
    rest = iter(lines_of(before))
    assert all(any(line == other for other in rest) for line in kept)
    assert (stretches(before, after) == ()) == (before == after)
