import ast
import bisect

import pytest

from tadpole.pilot.code import Code, parse
from tadpole.pilot.operators import OPERATORS

# operator, body of f before, and all bodies that it proposes, in order
GOLDEN = [
    ("cmp_negate", "return a == b", ["return a != b"]),
    ("cmp_negate", "return a  not  in b", ["return a  in b"]),
    ("cmp_negate", "return a <b< 3", ["return a >=b< 3", "return a <b>= 3"]),
    ("cmp_negate", "return (a) is (b)", []),
    ("cmp_boundary", "return a < b  # < c", ["return a <= b  # < c"]),
    ("cmp_boundary", "return a == b", []),
    ("bool_flip", "return a and b", ["return a or b"]),
    ("bool_flip", "return a and b and c", []),
    ("drop_clause", "return a and b", ["return b", "return a"]),
    ("drop_not", "return not a", ["return a"]),
    ("drop_not", "return not (a)", []),
    ("add_not", "if a:\n    b()", ["if not a:\n    b()"]),
    ("add_not", "if a == b:\n    b()", []),
    ("arith_flip", "return a + b * 2", ["return a - b * 2", "return a + b // 2"]),
    ("arith_flip", "return '%s' % a", []),
    ("swap_operands", "return a - b", ["return b - a"]),
    ("swap_operands", "return a * b", []),
    ("aug_flip", "a += 1", ["a -= 1"]),
    ("aug_flip", "a += 'x'", []),
    ("const_change", "return a[1]", ["return a[2]", "return a[0]"]),
    ("const_change", "return 0", ["return 1"]),
    ("const_change", "return 0x10", []),
    ("flag_flip", "return True", ["return False"]),
    ("drop_minus", "return -a", ["return a"]),
    ("remove_cond", "if a:\n    b()\nreturn 1", ["return 1"]),
    ("remove_cond", "while a:\n    if b:\n        c()", ["while a:\n    pass"]),
    ("remove_loop", "for x in a:\n    b()\nreturn 1", ["return 1"]),
    ("remove_assign", "a = 1\nreturn a", ["return a"]),
    ("remove_assign", "a = 1; b = 2", []),
    ("remove_call", "a.b()  # note\nreturn 1", ["return 1"]),
    ("remove_wrapper", "with a:\n    b()\nreturn 1", ["return 1"]),
    ("remove_raise", "if a:\n    raise b\nreturn 1", ["if a:\n    pass\nreturn 1"]),
    ("return_none", "return a + 1", ["return None"]),
    ("return_none", "return None", []),
    ("invert_if", "if a:\n    b()\nelse:\n    c()", ["if a:\n    c()\nelse:\n    b()"]),
    ("invert_if", "if a:\n    b()\nelif c:\n    d()", []),
    ("swap_lines", "a = 1\nb = a\nreturn b", ["b = a\na = 1\nreturn b"]),
    ("loop_jump", "for x in a:\n    break", ["for x in a:\n    continue"]),
    ("swap_args", "return g(a, b + 1, c)", ["return g(b + 1, a, c)"]),
    ("swap_args", "return g(*a, b)", []),
    ("drop_kwarg", "return g(a, key=b)", ["return g(a)"]),
    ("drop_kwarg", "return g(a, k=b, l=c)", ["return g(a, l=c)", "return g(a, k=b)"]),
    ("slice_drop", "return a[1:b]", ["return a[:b]", "return a[1:]"]),
    ("twin_call", "return min(a.lstrip())", ["return max(a.lstrip())", "return min(a.rstrip())"]),
    ("swap_ifexp", "return a if b else c", ["return c if b else a"]),
    ("drop_await", "async def g():\n    await a", ["async def g():\n    a"]),
    ("keep_errors", "return gather(a)", ["return gather(a, return_exceptions=True)"]),
    ("keep_errors", "return gather(a, return_exceptions=False)", []),
    ("remove_body", "return a", ["raise NotImplementedError"]),
    ("remove_body", "pass", []),
]


def mutants(operator: str, source: str) -> list[str]:
    code = Code.decode("m.py", source.encode())
    found = []
    for function in code.functions:
        for splice in OPERATORS[operator].find(code, function):
            found.append(code.text[: splice.start] + splice.text + code.text[splice.end :])
    return found


def function(body: str, head: str = "def f(a, b, c=0):") -> str:
    doc = '"""Say 1 < 2 and True."""\n'
    return head + "\n" + "".join(f"    {line}\n" for line in (doc + body).splitlines())


@pytest.mark.parametrize("operator, before, after", GOLDEN)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_golden(operator, before, after, ending):
    source = function(before).replace("\n", ending)
    assert mutants(operator, source) == [function(b).replace("\n", ending) for b in after]


def test_every_operator_has_a_golden_example():
    assert len(OPERATORS) >= 19
    assert {name for name, _, after in GOLDEN if after} == set(OPERATORS)


@pytest.mark.parametrize("head", ["async def f(a):", "@deco(1 < 2)\ndef f(a, b=1 < 2):"])
def test_async_and_decorated_functions_but_not_their_heads(head):
    assert mutants("cmp_boundary", function("return a < 3", head)) == [
        function("return a <= 3", head)
    ]


def test_methods_nested_blocks_and_type_checking():
    source = (
        "import typing\n"
        "if typing.TYPE_CHECKING:\n    def f(a):\n        return a < 1\n"
        "else:\n    def g(a):\n        return a < 2\n"
        "class A:\n    class B:\n        def h(self):\n"
        "            return 'é' if self.a < 3 else 1\n"
    )
    code = Code.decode("m.py", source.encode())
    assert [found.name for found in code.functions] == ["g", "A.B.h"]
    assert any("'é' if self.a <= 3 else" in mutant for mutant in mutants("cmp_boundary", source))


def test_byte_order_mark_and_odd_line_separators_keep_their_place():
    source = "def f(a):\n    x = '\x0c\u2028'; return a < 1\n"
    assert mutants("cmp_boundary", "\ufeff" + source) == [source.replace("<", "<=")]
    code = Code.decode("m.py", ("\ufeff" + source).encode())
    assert code.encode(code.text) == ("\ufeff" + source).encode()


def test_another_encoding_keeps_its_bytes():
    source = "# coding: latin-1\ndef f(a):\n    return 'é' if a < 1 else a\n"
    code = Code.decode("m.py", source.encode("latin-1"))
    splice = next(OPERATORS["cmp_boundary"].find(code, code.functions[0]))
    text = code.text[: splice.start] + splice.text + code.text[splice.end :]
    assert code.encode(text) == source.replace("<", "<=").encode("latin-1")


def test_positions_inside_f_strings_are_left_alone():
    assert mutants("cmp_boundary", function("return f'{a < 1}'")) == []


def test_mutants_of_real_code_parse_and_differ():
    with open(bisect.__file__, "rb") as stream:
        code = Code.decode("m.py", stream.read())
    for operator in OPERATORS.values():
        for found in code.functions:
            for splice in list(operator.find(code, found))[:1]:
                text = code.text[: splice.start] + splice.text + code.text[splice.end :]
                assert ast.dump(parse(text)) != code.dump
