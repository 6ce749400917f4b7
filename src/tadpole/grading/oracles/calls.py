"""Functions that check: ``numpy.testing``, ``pandas.testing``, and others named ``assert_...``."""

import ast
import random

from tadpole.grading.oracles.expected import mutation
from tadpole.grading.oracles.oracle import Draw, Oracle, Splice, Style, Text, lines_of, name_of
from tadpole.grading.oracles.unittests import FAILS

_NUMPY = {
    *("assert_equal", "assert_allclose", "assert_almost_equal", "assert_approx_equal"),
    *("assert_array_equal", "assert_array_almost_equal", "assert_string_equal"),
}
_PANDAS = {
    *("assert_frame_equal", "assert_series_equal", "assert_index_equal"),
    *("assert_extension_array_equal", "assert_numpy_array_equal", "assert_dict_equal"),
}


def read(node: ast.stmt, text: Text) -> Oracle | None:
    """The oracle of a statement that calls such a function."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    call = node.value
    name = name_of(call.func)
    if not name.startswith("assert_") or not text.alone(node):
        return None
    start = text.span(node)[0]

    def form(inverted: bool, rng: random.Random) -> list[Splice]:
        return [Splice(start, start, FAILS)] if inverted else []

    return Oracle(Style.CALL, lines_of(node), form, _mutation(name, call, text))


def _mutation(name: str, call: ast.Call, text: Text) -> Draw | None:
    if name not in _NUMPY | _PANDAS or len(call.args) < 2:
        return None
    if any(isinstance(arg, ast.Starred) for arg in call.args[:2]):
        return None
    return mutation(call.args[:2], text)
