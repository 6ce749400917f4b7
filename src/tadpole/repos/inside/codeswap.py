"""Puts the code of an edited file into functions that already live.

Runs inside the box: standard library, Python 3.11 and newer. What an edit changes is found by
comparing the compiled file with the compiled edit. Only the bodies of functions can be swapped,
and only those that did not run when the module was loaded: everything else (module level, class
bodies, defaults, decorators, signatures, what ran at import) raises :class:`Unswappable`, and
the edit needs a process that imports it. Refusing too often costs time; swapping wrongly would
give a wrong answer, so every doubt refuses.
"""

import gc
import inspect
import os
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType

_PARTS = (
    "co_argcount",
    "co_cellvars",
    "co_code",
    "co_exceptiontable",
    "co_flags",
    "co_freevars",
    "co_kwonlyargcount",
    "co_names",
    "co_posonlyargcount",
    "co_varnames",
)
_SIGNATURE = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_freevars")


class Unswappable(Exception):
    """The edit has to be imported; the text says why."""


@dataclass(frozen=True)
class Pair:
    """A function's code before and after the edit, and the functions around it."""

    old: CodeType
    new: CodeType
    changed: bool  # False: only its place in the file may differ
    around: tuple[CodeType, ...] = ()  # outermost first


def pairs(old: CodeType, new: CodeType, imported: Container[int]) -> list[Pair]:
    """Every function of a module with its edited code.

    ``imported`` are the lines that ran before any test did. Raises Unswappable.
    """
    return list(_pairs(old, new, imported, ()))


def _pairs(
    old: CodeType, new: CodeType, imported: Container[int], around: tuple[CodeType, ...]
) -> Iterator[Pair]:
    changed = _shell(old) != _shell(new)
    is_function = bool(old.co_flags & inspect.CO_OPTIMIZED)
    if changed:
        _check(old, new, imported, is_function or bool(around))
    if is_function:
        yield Pair(old, new, changed, around)
        around = (*around, old)
    before, after = _nested(old), _nested(new)
    if [code.co_qualname for code in before] == [code.co_qualname for code in after]:
        for one, other in zip(before, after, strict=True):
            yield from _pairs(one, other, imported, around)
    else:  # no telling which became which
        for one in before:
            yield Pair(one, one, True, (one,))


def _check(old: CodeType, new: CodeType, imported: Container[int], inside: bool) -> None:
    if not inside:
        raise Unswappable(f"{old.co_qualname} is no function")
    if any(getattr(old, name) != getattr(new, name) for name in _SIGNATURE):
        raise Unswappable(f"{old.co_qualname} has another signature")
    names = old.co_argcount + old.co_kwonlyargcount
    if old.co_varnames[:names] != new.co_varnames[:names] or _docstring(old) != _docstring(new):
        raise Unswappable(f"{old.co_qualname} has another signature")
    lines = {line for *_, line in old.co_lines() if line} - {old.co_firstlineno}
    if not lines or any(line in imported for line in lines):
        raise Unswappable(f"{old.co_qualname} runs at import")


def _shell(code: CodeType) -> tuple[object, ...]:
    """All of a code but its place in the file and what is nested in it."""
    consts = [
        "code" if isinstance(one, CodeType) else (type(one), repr(one)) for one in code.co_consts
    ]
    return (*(getattr(code, name) for name in _PARTS), *consts)


def _docstring(code: CodeType) -> object:
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) and not code.co_name.startswith("<") else None


def _nested(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


class Living:
    """The functions that live in this process, by file and place."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], list[FunctionType]] = {}
        gc.unfreeze()  # what a conftest or a plugin has frozen is listed nowhere
        gc.collect()
        real: dict[str, str] = {}
        for one in gc.get_objects():
            if type(one) is FunctionType:
                name = one.__code__.co_filename
                if name not in real:
                    real[name] = os.path.realpath(name)
                key = (real[name], one.__code__.co_qualname, one.__code__.co_firstlineno)
                self._found.setdefault(key, []).append(one)
        # Not isinstance and not vars: both ask the module, and a lazy one loads itself then.
        modules = [one for one in sys.modules.values() if issubclass(type(one), ModuleType)]
        loaded = [object.__getattribute__(one, "__dict__").get("__file__") for one in modules]
        self.files = frozenset(key[0] for key in self._found).union(
            os.path.realpath(one) for one in loaded if isinstance(one, str)
        )

    def _of(self, path: str, code: CodeType) -> list[FunctionType]:
        return self._found.get((path, code.co_qualname, code.co_firstlineno), [])

    def swap(self, path: str, found: list[Pair]) -> None:
        """Give the functions of a file (its real path) their new code.

        A file of which nothing was loaded needs none: it will be read from disk. Raises
        Unswappable, and then the process has to end.
        """
        if path not in self.files:
            return
        for pair in found:
            live = self._of(path, pair.old)
            if not pair.changed:
                live = [one for one in live if _shell(one.__code__) == _shell(pair.old)]
            elif pair.old is pair.new:
                if live:
                    raise Unswappable(f"{pair.old.co_qualname} has no counterpart")
            elif any(_shell(one.__code__) != _shell(pair.old) for one in live):
                raise Unswappable(f"{pair.old.co_qualname} is not what its file says")
            elif not live and not any(self._of(path, code) for code in pair.around):
                raise Unswappable(f"no function {pair.old.co_qualname} lives")
            for one in live:
                one.__code__ = pair.new
