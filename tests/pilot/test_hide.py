import ast

import pytest

from tadpole.pilot.hide import by_file, locate, source_of, without_tests

SOURCE = '''import pytest

LIMIT = 3


@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_one(a):
    assert a


async def test_two():
    pass


class TestOnly:
    def test_alone(self):
        assert LIMIT


class Base:
    def test_shared(self):
        assert 1


class TestChild(Base):
    """Has one of its own."""

    def test_own(self):
        assert 2


if LIMIT:
    def test_sometimes():
        assert 3
'''


def cut(*chains, source=SOURCE):
    return without_tests("tests/test_m.py", source.encode(), set(chains))


@pytest.mark.parametrize(
    "node_id, wanted",
    [
        ("tests/test_m.py::test_one[a::b]", ("tests/test_m.py", ("test_one",))),
        ("tests/test_m.py::TestA::test_b[x[1]]", ("tests/test_m.py", ("TestA", "test_b"))),
        ("pond/m.py::pond.m.f", ("pond/m.py", ("pond.m.f",))),
    ],
)
def test_node_ids_are_taken_apart(node_id, wanted):
    assert locate(node_id) == wanted


def test_parameter_sets_of_one_function_are_one_function():
    assert by_file(["t.py::f[1]", "t.py::f[2]", "u.py::C::g"]) == {
        "t.py": {("f",)},
        "u.py": {("C", "g")},
    }


def test_decorators_go_with_the_function_and_the_rest_stays():
    text = cut(("test_one",)).decode()
    assert text == SOURCE.replace(SOURCE[SOURCE.index("@pytest") : SOURCE.index("\n\nasync")], "")
    assert "LIMIT = 3" in text


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "chain",
    [
        ("test_two",),
        ("TestOnly", "test_alone"),
        ("TestChild", "test_own"),
        ("TestChild", "test_shared"),  # lives in its base class
        ("test_sometimes",),
    ],
)
def test_what_is_left_is_python_without_the_test(chain, ending):
    source = SOURCE.replace("\n", ending)
    left = cut(chain, source=source)
    assert chain[-1] not in left.decode()
    ast.parse(left)
    assert left.count(b"\n") == left.count(ending.encode())


def test_an_emptied_class_keeps_a_body():
    assert b"class TestOnly:\n    pass\n" in cut(("TestOnly", "test_alone"))


def test_several_at_once():
    left = cut(("test_one",), ("test_two",), ("TestOnly", "test_alone")).decode()
    assert "test_one" not in left and "test_two" not in left and "TestChild" in left


@pytest.mark.parametrize("chain", [("test_made_by_a_loop",), ("TestNone", "x"), ("pond.m.f",)])
def test_what_has_no_definition_cannot_be_hidden(chain):
    assert cut(chain) is None


def test_a_function_that_shares_its_line_cannot_be_hidden():
    assert cut(("test_a",), source="x = 1; \\\ndef test_a(): pass\n") is None


def test_the_source_of_one_test():
    text = source_of("t.py", SOURCE.encode(), ("test_one",))
    assert text.startswith("@pytest.mark.parametrize") and text.endswith("assert a\n")
