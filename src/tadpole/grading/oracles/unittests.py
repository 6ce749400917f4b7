"""The checks of ``unittest.TestCase``: ``self.assertEqual(a, b)`` and its relatives."""

import ast
import random

from tadpole.grading.oracles.expected import mutation, singleton
from tadpole.grading.oracles.oracle import Draw, Oracle, Splice, Style, Text, lines_of

_OPPOSITES = {
    "assertTrue": "assertFalse",
    "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone",
    "assertIn": "assertNotIn",
    "assertIsInstance": "assertNotIsInstance",
    "assertEqual": "assertNotEqual",
    "assertAlmostEqual": "assertNotAlmostEqual",
    "assertRegex": "assertNotRegex",
}
_OPPOSITE = _OPPOSITES | {other: name for name, other in _OPPOSITES.items()}
_COMPARE = {
    *("assertEqual", "assertAlmostEqual", "assertListEqual", "assertTupleEqual"),
    *("assertDictEqual", "assertSetEqual", "assertSequenceEqual", "assertMultiLineEqual"),
}
FAILS = b'with __import__("pytest").raises(Exception): '


def read(node: ast.stmt, text: Text) -> Oracle | None:
    """The oracle of a statement ``self.assert...(...)``."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    call = node.value
    if not isinstance(call.func, ast.Attribute) or not text.alone(node):
        return None
    name = call.func.attr
    if not name.startswith("assert") or "_" in name or name[6:7].islower():
        return None
    if name.startswith(("assertRaises", "assertWarns", "assertLogs")):
        return None
    start, end = text.span(node)[0], text.span(call.func)[1]

    def form(inverted: bool, rng: random.Random) -> list[Splice]:
        if not inverted:
            return []
        if name in _OPPOSITE:
            return [Splice(end - len(name), end, _OPPOSITE[name].encode())]
        return [Splice(start, start, FAILS)]

    return Oracle(Style.UNITTEST, lines_of(node), form, _mutation(name, call, text))


def _mutation(name: str, call: ast.Call, text: Text) -> Draw | None:
    if len(call.args) < 2 or any(isinstance(arg, ast.Starred) for arg in call.args[:2]):
        return None
    if name == "assertIs":
        return singleton(call.args[1], text)
    if name == "assertAlmostEqual" and not _number(call.args[1]):
        return None  # something else than a number could not be compared
    return mutation(call.args[:2], text) if name in _COMPARE else None


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float)
