"""Tells when tested code has replaced a part of the test runner. The first part of the bootstrap.

Its source is run in the box before that of :mod:`tadpole.grading.bootstrap`, in one namespace with
it (so that a replaced observer is seen as well). Standard library only, Python 3.8+.

Guards against: other functions or other code in pytest, pluggy, unittest, builtins and the
observers, whoever put them there. Does not guard against: a change that is undone before the
next look (after each test), or changes to objects that are neither functions nor classes.
"""

from __future__ import annotations

import builtins
import operator
import sys
import types
import typing
import unittest.case  # noqa: F401 - loaded so that it can be watched

if typing.TYPE_CHECKING:
    from collections.abc import Callable

WATCHED = (
    *("_pytest.runner", "_pytest.reports", "_pytest.python", "_pytest.unittest"),
    *("_pytest.raises", "_pytest.approx", "_pytest.python_api", "_pytest.outcomes"),
    *("_pytest.skipping", "_pytest.subtests", "_pytest.fixtures", "_pytest.main"),
    *("_pytest.assertion", "_pytest.assertion.rewrite", "_pytest.assertion.util"),
    *("pluggy._callers", "pluggy._hooks", "pluggy._manager", "pluggy.callers", "pluggy.hooks"),
    *("unittest.case", "hmac"),
)


def open_watch() -> Callable[[], object]:
    """A function that names a watched function that is no longer what it was, or ""."""
    modules = [sys.modules[name] for name in WATCHED if name in sys.modules]
    spaces: list[tuple[str, typing.Any]] = [(module.__name__, vars(module)) for module in modules]
    spaces.append((__name__, globals()))
    for name, space in list(spaces):
        spaces += [
            (cls.__qualname__, vars(cls))
            for cls in space.values()
            if isinstance(cls, type) and cls.__module__ == name
        ]
    places: list[typing.Any] = []
    keys: list[str] = []
    values: list[object] = []
    functions: list[typing.Any] = []
    for name, space in [*spaces, ("builtins", vars(builtins))]:
        for key, value in space.items():
            found = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            plain = isinstance(found, types.FunctionType)
            if name == "builtins" and (key == "_" or key.startswith("__")):
                continue
            if plain or isinstance(found, type) or name == "builtins":
                places.append(space)
                keys.append(key)
                values.append(value)
                if plain:
                    functions.append(found)
    code = operator.attrgetter("__code__")
    codes = list(map(code, functions))
    same, get, every = operator.is_, operator.getitem, all

    def changed() -> object:
        try:
            if not every(map(same, map(get, places, keys), values)):
                return next(k for at, k in enumerate(keys) if places[at][k] is not values[at])
            if not every(map(same, map(code, functions), codes)):
                return next(f for at, f in enumerate(functions) if f.__code__ is not codes[at])
        except KeyError as error:
            return str(error)
        return ""

    return changed


def parts_of(function: typing.Any) -> list[object]:
    """The functions and code objects behind a test function, decorators included."""
    found: list[object] = []
    while function is not None and len(found) < 40:
        function = getattr(function, "__func__", function)
        found += [function, getattr(function, "__code__", None)]
        function = getattr(function, "__wrapped__", None)
    return found
