import pond
import pytest

from tadpole.pilot.candidate import Site
from tadpole.pilot.code import Code
from tadpole.pilot.dictation import dictate
from tadpole.pilot.operators import OPERATORS
from tadpole.pilot.statement import dictation_text


def site(pristine: str, old: str, new: str) -> Site:
    offset = pristine.index(old)
    return Site("pond/m.py", offset, old, new, pristine.count("\n", 0, offset) + 1, ())


def code(text: str) -> Code:
    return Code.decode("pond/m.py", text.encode())


def apply(text: str, dictated) -> str:
    assert text.count(dictated.old) == 1
    return text.replace(dictated.old, dictated.new)


@pytest.mark.parametrize(
    "pristine, old, new, wanted",
    [
        # the smallest expression around it that is long enough and stands there once
        ("if size < 10:\n    a = size\n", "<", "<=", ("size <= 10", "size < 10")),
        # the expression is too short, the statement is not
        ("a = b + 1\nc = 2\n", "+", "-", ("a = b - 1", "a = b + 1")),
        # the bug made it equal to another place: the line before it is told too
        (
            "def f():\n    return 1234567\ndef g():\n    return 1234568\n",
            "1234567",
            "1234568",
            ("def f():\n    return 1234568", "def f():\n    return 1234567"),
        ),
        # nothing is left of what was taken out
        (
            "def f():\n    one()\n    two()\n    three()\n",
            "    two()\n",
            "",
            ("    one()\n    three()", "    one()\n    two()\n    three()"),
        ),
    ],
)
def test_the_shortest_unique_text(pristine, old, new, wanted):
    where = site(pristine, old, new)
    dictated = dictate(code(pristine), where)
    assert (dictated.old, dictated.new) == wanted
    buggy = pristine[: where.offset] + new + pristine[where.offset + len(old) :]
    assert apply(buggy, dictated) == pristine


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("source", [pond.SHAPES, pond.WORDS])
def test_a_dictated_edit_always_gives_back_the_pristine_file(source, ending):
    text = source.replace("\n", ending)
    whole = code(text)
    tried = 0
    for operator in OPERATORS.values():
        for function in whole.functions:
            for splice in operator.find(whole, function):
                old = text[splice.start : splice.end]
                where = Site("pond/m.py", splice.start, old, splice.text, 1, ())
                buggy = text[: splice.start] + splice.text + text[splice.end :]
                dictated = dictate(whole, where)
                assert apply(buggy, dictated) == text
                tried += 1
    assert tried > 30


def test_no_text_is_found_where_everything_repeats():
    pristine = "x = 1\n" * 60
    where = Site("m.py", 6 * 30 + 4, "1", "1", 31, ())
    assert dictate(code(pristine), where) is None


def test_the_sentence_is_regular_and_long_texts_are_fenced():
    short = dictate(code("if size < 10:\n    pass\n"), site("if size < 10:\n    pass\n", "<", "<="))
    assert short.plain
    assert dictation_text(short) == "In `pond/m.py` replace `size <= 10` with `size < 10`."
    text = "def f():\r\n    one()\r\n    two()\r\n"
    long = dictate(code(text), site(text, "    one()\r\n", ""))
    assert not long.plain
    assert dictation_text(long) == (
        "In `pond/m.py` replace\n```\ndef f():\n    two()\n```\n"
        "with\n```\ndef f():\n    one()\n    two()\n```"
    )


@pytest.mark.parametrize("piece", ['a["key"] < 1', "a['`'] < 1", "a['\\\\'] < 1", "a['é'] < 1"])
def test_what_would_need_escaping_is_not_plain(piece):
    pristine = f"if {piece}:\n    pass\n"
    assert not dictate(code(pristine), site(pristine, "<", "<=")).plain
