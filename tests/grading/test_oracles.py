"""Rewritten checks: under a right program a test holds exactly where both or neither was done."""

import random
import unittest
import unittest.mock
from dataclasses import replace

import numpy
import pytest

from tadpole.grading.oracles import Style, Text, oracles_of, spliced
from tadpole.grading.variants import Suite, function_of, pair
from tadpole.task import FileChange

ROWS = {
    "assert ==": (Style.ASSERT, True, "assert f(1) == 3"),
    "assert ==, the literal first": (Style.ASSERT, True, "assert 3 == f(1)"),
    "assert == and a message": (Style.ASSERT, True, "assert (\n    f(1)\n    == 3\n), 'no'"),
    "assert == of a list": (Style.ASSERT, True, "assert [f(1), 'x'] == [3, 'x']"),
    "assert == of a variable": (Style.ASSERT, True, "three = 1 + 2\nassert f(1) == three"),
    "assert == of a negative number": (Style.ASSERT, True, "assert -f(1) == -3"),
    "assert == of a text": (Style.ASSERT, True, "assert str(f(1)) == '3'"),
    "assert == of accents": (Style.ASSERT, True, "assert 'é' * f(1) == 'é' 'éé'  # é"),
    "assert a == b == c": (Style.ASSERT, True, "assert 3 == f(1) == 3"),
    "assert and": (Style.ASSERT, True, "assert f(1) and f(1) == 3"),
    "assert is": (Style.ASSERT, True, "assert (f(1) == 3) is True"),
    "assert not": (Style.ASSERT, False, "assert not f(1) - 3"),
    "assert truth": (Style.ASSERT, False, "assert f(1) in (2, 3)"),
    "assert !=": (Style.ASSERT, False, "assert f(1) != -1"),
    "approx": (Style.ASSERT, True, "assert f(1) / 2 == pytest.approx(1.5)"),
    "approx of a list": (Style.ASSERT, True, "assert [f(1)] == pytest.approx([3.0], abs=0.1)"),
    "approx of zero": (Style.ASSERT, True, "assert f(1) - 3.0 == pytest.approx(0.0, abs=0.01)"),
    "in a with block": (Style.ASSERT, True, "with null():\n    assert f(1) == 3"),
    "in a loop": (Style.ASSERT, True, "for n in (1, 1):\n    assert f(n) == 3"),
    "raises": (Style.RAISES, True, "with pytest.raises(ValueError):\n    check(f(1))"),
    "raises, and what it says": (
        Style.RAISES,
        True,
        "with pytest.raises(ValueError, match='bad') as e:\n    check(f(1))\nstr(e.value)[0]",
    ),
    "raises beside another": (
        Style.RAISES,
        True,
        "with null(), pytest.raises((ValueError, KeyError)):\n    check(f(1))",
    ),
    "raises in brackets": (
        Style.RAISES,
        True,
        "with (\n    null(),\n    pytest.raises(ValueError),\n):\n    check(f(1))",
    ),
    "raises anything": (Style.RAISES, False, "with pytest.raises(Exception):\n    check(f(1))"),
    "raises, called": (Style.RAISES, True, "pytest.raises(ValueError, check, f(1))"),
    "raises one of their own": (Style.RAISES, True, "with pytest.raises(Own):\n    own(f(1))"),
    "assertRaises": (Style.RAISES, True, "with self.assertRaises(ValueError):\n    check(f(1))"),
    "assertEqual": (Style.UNITTEST, True, "self.assertEqual(f(1), 3)"),
    "assertEqual of a variable": (Style.UNITTEST, True, "w = [3]\nself.assertEqual([f(1)], w)"),
    "assertListEqual": (Style.UNITTEST, True, "self.assertListEqual([f(1)], [3])"),
    "assertDictEqual": (Style.UNITTEST, True, "self.assertDictEqual({'a': f(1)}, {'a': 3})"),
    "assertAlmostEqual": (Style.UNITTEST, True, "self.assertAlmostEqual(f(1) / 2, 1.5)"),
    "assertTrue": (Style.UNITTEST, False, "self.assertTrue(f(1) == 3)"),
    "assertIsNone": (Style.UNITTEST, False, "self.assertIsNone(None if f(1) == 3 else 1)"),
    "assertIs": (Style.UNITTEST, True, "self.assertIs(f(1) == 3, True)"),
    "assertIn": (Style.UNITTEST, False, "self.assertIn(f(1), [2, 3])"),
    "assertGreater": (Style.UNITTEST, False, "self.assertGreater(f(1), 2)"),
    "assertCountEqual": (Style.UNITTEST, False, "self.assertCountEqual([f(1)], [3])"),
    "assert_allclose": (Style.CALL, True, "numpy.testing.assert_allclose([f(1)], [3.0])"),
    "assert_array_equal": (Style.CALL, True, "numpy.testing.assert_array_equal([f(1)], [3])"),
    "assert_array_equal of a variable": (
        Style.CALL,
        True,
        "w = numpy.array([3, 3])\nnumpy.testing.assert_array_equal(numpy.array([f(1)] * 2), w)",
    ),
    "assert_array_less": (Style.CALL, False, "numpy.testing.assert_array_less([-f(1)], [0])"),
    "assert_frame_equal": (Style.CALL, True, "w = [3]\ntm.assert_frame_equal([f(1)], w)"),
    "an assert function of their own": (Style.CALL, False, "assert_three(f(1))"),
}


class Own(Exception):
    pass


class Frames:
    """What pandas.testing does, without pandas."""

    @staticmethod
    def assert_frame_equal(left, right):
        if left != right:
            raise AssertionError("not the same")


def passes(source: bytes, right: bool) -> bool:
    """Whether the test of a right or a wrong program passes."""

    def check(value):
        if value == 3:
            raise ValueError("bad value")

    def own(value):
        if value == 3:
            raise Own

    def assert_three(value):
        assert value == 3

    space = {
        "pytest": pytest,
        "numpy": numpy,
        "null": unittest.mock.MagicMock,
        "f": lambda n: n + 2 if right else n - 2,
        "check": check,
        "own": own,
        "Own": Own,
        "tm": Frames,
        "assert_three": assert_three,
    }
    exec(compile(source, "test_x.py", "exec"), space)
    try:
        space["TestX"]("test").test()
    except (Exception, pytest.fail.Exception):
        return False
    return True


def written(body: str) -> bytes:
    lines = "\n".join("        " + line for line in body.splitlines())
    head = "# é\nimport unittest\nclass TestX(unittest.TestCase):\n    def test(self):\n"
    return f"{head}{lines}\n".encode()


@pytest.mark.parametrize("name", ROWS)
def test_a_rewritten_check(name):
    style, comparable, body = ROWS[name]
    text = Text(written(body))
    [oracle] = oracles_of(text, ("TestX", "test"))
    assert (oracle.style, oracle.mutate is not None) == (style, comparable)
    assert (passes(text.content, True), passes(text.content, False)) == (True, False)
    for seed in range(6):
        rng = random.Random(seed)
        for mutated, inverted in ((0, 0), (0, 1), (1, 0), (1, 1)):
            if mutated and not comparable:
                continue
            new = spliced(text.content, oracle.splices(bool(mutated), bool(inverted), rng))
            assert passes(new, True) is (mutated == inverted), new.decode()
            if not mutated and " as e:" not in body:  # what follows looks at the exception
                assert passes(new, False) is bool(inverted), new.decode()


@pytest.mark.parametrize(
    "body",
    [
        "if f(1):\n    assert f(1) == 3",
        "try:\n    assert f(1) == 3\nfinally:\n    pass",
        "f(1)",
        "def inner():\n    assert f(1) == 3",
        "with pytest.warns(UserWarning):\n    f(1)",
    ],
)
def test_what_may_not_run_or_is_no_check_is_left_alone(body):
    assert oracles_of(Text(written(body)), ("TestX", "test")) == []


def test_a_check_that_compares_comes_before_one_that_does_not():
    body = "assert f(1)\nfor n in ():\n    assert f(n) == 3\nassert f(1) == 4"
    assert [oracle.lines[0] for oracle in oracles_of(Text(written(body)), ("TestX", "test"))] == [
        8,
        7,
        5,
    ]


def test_other_functions_and_other_encodings():
    text = Text(b"def test_a(): assert 1 == x\nclass A:\n    def test_a(self): assert x == 2\n")
    assert [o.lines[0] for o in oracles_of(text, ("test_a",))] == [1]
    assert [o.lines[0] for o in oracles_of(text, ("A", "test_a"))] == [3]
    assert oracles_of(text, ("B", "test_a")) == oracles_of(text, ("test_b",)) == []
    for content in (b"# \xff\n", b"def :\n"):
        with pytest.raises(ValueError):
            Text(content)


def test_carriage_returns_stay():
    text = Text(b"def test():\r\n    x = 1\r\n    assert x == 1\r\n")
    [oracle] = oracles_of(text, ("test",))
    new = spliced(text.content, oracle.splices(False, True, random.Random(0)))
    assert new == b"def test():\r\n    x = 1\r\n    assert bool(x == 1) is False\r\n"


# --- variants ------------------------------------------------------------------------------------


@pytest.fixture
def suite(task, tree):
    return Suite.of(task, lambda path: (tree / path).read_bytes())


ALL = {
    "tests/test_core.py::test_add": 0,
    "tests/test_core.py::TestAdd::test_negative": 0,
    "tests/test_classic.py::Classic::test_add": 0,
}


def test_two_variants_are_complements_and_one_of_them_compares_with_something_else(suite, task):
    plain = {path: file.content for path, file in suite.files.items()}
    for seed in range(20):
        one, other = pair(suite, ALL, ALL, random.Random(seed))
        assert one.ids == other.ids == task.fail_to_pass
        assert one.must_fail ^ other.must_fail == set(one.ids)
        texts = [{file.path: file.content for file in v.files} for v in (one, other)]
        assert not any(v == plain for v in texts)
        for literal in (b"== total)", b"== -2)", b", 10)"):
            holding = [any(literal in content for content in t.values()) for t in texts]
            assert sorted(holding) == [False, True]


def test_nothing_but_the_coin_tells_which_tests_must_fail(suite):
    """The text of a check as it is inverted does not say by itself how it will end."""
    name = "tests/test_core.py::TestAdd::test_negative"
    ends = set()
    for seed in range(60):
        for variant in pair(suite, ALL, [name], random.Random(seed)):
            [file] = variant.files
            ends.add((b"is False" in file.content, bool(variant.must_fail)))
    assert ends == {(False, False), (False, True), (True, False), (True, True)}


def test_the_check_that_fails_without_the_repair_is_tried_first(task):
    body = b"def test_add():\n    assert f(1) == 1\n    assert f(\n        2\n    ) == 2\n"
    body += b"    assert f(3)\n"
    task = replace(
        task,
        hidden=(FileChange("tests/test_core.py", body),),
        fail_to_pass=("tests/test_core.py::test_add",),
        pass_to_pass=(),
    )
    suite = Suite.of(task, lambda path: None)
    name = task.fail_to_pass[0]
    orders = {line: suite.order(name, line) for line in (0, 2, 4, 6)}
    assert orders == {0: [0, 1], 2: [0, 1], 4: [1, 0], 6: [2, 0]}


def test_draws_come_from_the_operating_system_and_differ(suite):
    rng = random.SystemRandom()
    drawn = {pair(suite, ALL, ALL, rng)[0] for _ in range(30)}
    assert len(drawn) > 15


def test_parameters_share_one_function():
    assert function_of("a.py::T::test_x[a::b[0]]") == "a.py::T::test_x"
    assert function_of("a[1].py::test_x") == "a[1].py::test_x"


def test_files_that_are_no_python_are_left_out(task):
    odd = FileChange("tests/test_core.py", b"\xff")
    suite = Suite.of(replace(task, hidden=(odd,)), lambda path: None)
    assert all(not found for found in suite.oracles.values())
