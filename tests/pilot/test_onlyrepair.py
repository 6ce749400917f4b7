"""What a repair alone would bring back is not told; what a test expects to read is."""

import pytest

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code
from tadpole.pilot.onlyrepair import names, without
from tadpole.pilot.symptom import Symptom


def brought(old, new, rest=""):
    """The hidden names of a repair that puts ``old`` in place of ``new``."""
    text = f"def f(a):\n    {old}\n{rest}"
    site = Site("m.py", text.index(old), old, new, 2, ())
    candidate = Candidate("p", "x", (), ("f",), (site,))
    return names(candidate, {"m.py": Code.decode("m.py", text.encode())})


@pytest.mark.parametrize(
    "old, new, hidden",
    [
        ("return secret(a)", "return a", {"secret"}),
        ("return secret(a)", "return secret", set()),
        ("return 'a wish', \"too\"", "return", set()),
        ("return 'it\\'s' + '''two 'lines'\nof it''' + other", "return 1", {"other"}),
        ('return rb"raw" + f"{a} text" + other', "return 1", {"other"}),
        ("return f'text {secret(a)}' + rf'{b!r}'", "return 1", {"secret", "b", "r"}),
        ("if not isinstance(a, str): raise ValueError", "pass", set()),
        ('return """\n    It\'s said.\n    """ + other', "return 1", {"other"}),
        ("return b  # as it's said", "return", {"b"}),
        ("return '# one' + other", "return", {"other"}),
    ],
)
def test_names_are_those_that_only_the_repair_has(old, new, hidden):
    assert brought(old, new) == hidden


def test_a_part_of_a_docstring_names_nothing():
    text = 'def f(a):\n    """One.\n\n    Never a secret.\n    """\n    return odd(a)\n'
    start, end = text.index("    Never"), text.index("\n", text.index("return"))
    site = Site("m.py", start, text[start:end], '    """\n    return a', 4, ())
    candidate = Candidate("p", "x", (), ("f",), (site,))
    assert names(candidate, {"m.py": Code.decode("m.py", text.encode())}) == {"odd"}


def test_a_name_that_the_file_uses_elsewhere_is_known():
    assert brought("return secret(a)", "return a", "\nsecret = f\n") == set()


def test_of_a_message_that_names_it_the_error_is_left():
    leak = Symptom("NameError", "secret said no", "secret", "f(1)")
    assert without(leak, {"secret"}) == Symptom("NameError", "", "", "f(1)")
    assert without(leak, {"other"}) == leak
    detail = Symptom("", "assert 1 == 2", "+ where 1 = secret(2)", "x")
    assert without(detail, {"secret"}) == Symptom("", "", "", "x")
