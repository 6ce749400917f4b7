"""What the failing statement of a test tells by itself, without a word of its failure.

Does not see: what a helper of the tests checks, so a call of one tells nothing.
"""

import ast

_OF_ONE = ("assertTrue", "assertFalse", "assertIsNone", "assertIsNotNone")
_CONVERTING = ("bool", "bytes", "dict", "len", "list", "repr", "set", "sorted", "str", "tuple")


def is_check(statement: ast.stmt) -> bool:
    """Whether it asserts something, or waits for an error."""
    match statement:
        case ast.Assert():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name))):
            return name.startswith("assert") or name in ("raises", "fail")
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=called)), *_]):
            name = str(getattr(called, "attr", getattr(called, "id", "")))
            return name == "raises" or name.startswith("assert")
    return False


def only_fails(statement: ast.stmt) -> bool:
    """Whether what was checked came before: `assert False`, `pytest.fail(...)`, `raise ...`."""
    match statement:
        case ast.Assert(test=ast.Constant()) | ast.Raise():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="fail") | ast.Name(id="fail"))):
            return True
    return False


def is_written_out(statement: ast.stmt) -> bool:
    """Whether it is a check, and of more than two names that are held against each other."""
    checked: list[ast.expr]
    match statement:
        case ast.Assert(test=test):
            checked = [test]
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=given)
        ) if name.startswith("assert"):
            checked = given[: 1 if name in _OF_ONE else 2]
        case _:
            return False
    match checked:
        case [ast.Compare(left=left, comparators=others)]:
            checked = [left, *others]
    return len(checked) == 1 or not all(map(_is_bare, checked))


def _is_bare(operand: ast.expr) -> bool:
    """Whether an operand tells no value: a name, and what is inside of it or made of it."""
    match operand:
        case ast.Name():
            return True
        case ast.Attribute(value=inner) | ast.Subscript(value=inner):
            return _is_bare(inner)
        case ast.Call(func=ast.Attribute(value=inner), args=[], keywords=[]):
            return _is_bare(inner)
        case ast.Call(func=ast.Name(id=name), args=given) if name in _CONVERTING:
            return all(map(_is_bare, given))
    return False
