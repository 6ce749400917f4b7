"""Tells when changed code writes over what the tests read. A part of the bootstrap.

Its source is run in the box after that of :mod:`tadpole.grading.alarm`, in one namespace with it.
Standard library only, Python 3.8+.

Guards against: changed files that write over test files, conftest files, helpers or data, which
would then say something else: all that lies beside the tests and below, and what else in the tree
the tests and conftest files name, in a string or an import. In a thread that is not the main one,
whose stack does not tell who started it, only code of the tests may.

Does not guard against: files that are written by a program of their own, or by an unchanged
function in the main thread that changed code left it to for later; data whose name the tests put
together; data that lies with changed files.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import typing

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from tadpole.grading.alarm import spots  # in the box: the same namespace

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
# Which of an event's arguments are places that change, or that will have another name to it, each
# with the one that says in which directory it begins.
_PLACES = {
    **{"os.rename": ((0, 2), (1, 3)), "os.link": ((0, 2), (1, 3)), "os.symlink": ((1, 2),)},
    **{"os.remove": ((0, 1),), "os.rmdir": ((0, 1),), "os.chmod": ((0, 2),)},
    **{"os.truncate": ((0, 9),)},  # it takes none
}
_WORDS = re.compile(rb"""["']([\w./ -]{1,200})["']""")
_IMPORTED = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+\.*([\w.]+)(?:[ \t]+import[ \t]+(\w+))?", re.M
)


def read_tests(root: str, ids: list[str]) -> dict[str, bytes | None]:
    """The test files and conftest files, with what they hold now; None for those not there."""
    files = {node.split("::", 1)[0] for node in ids}
    for file in list(files):
        parts = file.split("/")[:-1]
        files |= {"/".join([*parts[:depth], "conftest.py"]) for depth in range(len(parts) + 1)}
    contents: dict[str, bytes | None] = {}
    for file in files:
        path = os.path.join(root, file)
        contents[path] = None
        if os.path.isfile(path):
            with open(path, "rb") as stream:
                contents[path] = stream.read()
    return contents


def used_by(root: str, tests: Mapping[str, bytes | None], changed: Collection[str]) -> set[str]:
    """All files that ``tests`` (absolute paths, as :func:`read_tests` has them) can be reading:
    themselves, what is beside them and below, and what they name. Without ``changed`` ones.
    """
    top = os.path.realpath(root)
    folders = {os.path.dirname(os.path.realpath(path)) for path in tests}
    beside = {os.path.dirname(os.path.realpath(p)) for p in tests if not _is_conftest(p)}
    code = set()  # folders that hold changed files: what is written there is the change's own
    for path in map(os.path.realpath, changed):
        while len(path := os.path.dirname(path)) > len(top):
            code.add(path)
    found = {os.path.realpath(path) for path in tests}
    queue = list(beside - {top})
    named = {name for text in tests.values() if text for name in _names(text)}
    for folder in folders:
        there = {*(os.listdir(folder) if os.path.isdir(folder) else ()), ".", ".."} - {".git"}
        for name in named:
            if name.split("/", 1)[0] not in there:  # most words are no names of files
                continue
            path = os.path.normpath(os.path.join(folder, name))
            if not path.startswith(top + "/"):
                continue
            if os.path.isfile(path):
                found.add(os.path.realpath(path))
            elif path not in code and os.path.isdir(path):
                queue.append(path)
    for place in sorted(queue):
        if place in found:  # walked with the one around it
            continue
        for folder, _, names in os.walk(place):
            found.add(folder)
            found.update(os.path.join(folder, name) for name in names)
    return found - set(map(os.path.realpath, changed))


def _is_conftest(path: str) -> bool:
    return os.path.basename(path) == "conftest.py"


def _names(source: bytes) -> Iterator[str]:
    """What a test file can name other files by, relative to one of the folders around it."""
    for (word,) in map(re.Match.groups, _WORDS.finditer(source)):
        yield word.decode("utf-8", "replace").rstrip("/")
    for module, name in map(re.Match.groups, _IMPORTED.finditer(source)):
        path = module.decode("utf-8", "replace").replace(".", "/")
        yield from (path + ".py", path)
        if name:
            yield f"{path}/{name.decode('utf-8', 'replace')}.py"


def open_guard(
    changed: Collection[str],
    tests: Collection[str],
    tell: Callable[[str], object],
    busy: set[int],
) -> None:
    """Call ``tell`` when code of a changed file is about to write over a file of the tests.

    ``changed``: absolute paths. ``tests``: those of all files that the tests read.
    """
    getframe, files, path = sys._getframe, frozenset(changed), os.path
    thread, main = threading.get_ident, threading.get_ident()
    above: set[str] = set()
    for file in tests:
        while len(file := path.dirname(file)) > 1 and file not in above:
            above.add(file)
    kept = above.union(tests)

    def named(event: str, args: tuple[typing.Any, ...]) -> list[str]:
        if event == "open":
            return [path.realpath(spot) for spot in spots(args[0], anywhere=args[1] is None)]
        found = [
            spot
            for name, begin in _PLACES[event]
            for spot in spots(args[name], args[begin] if begin < len(args) else -1)
        ]
        heads = [path.split(spot.rstrip("/")) for spot in found]
        return [path.join(path.realpath(head), tail) for head, tail in heads]

    def below(places: Collection[str]) -> bool:
        frame: typing.Any = getframe(2)
        while frame is not None and frame.f_code.co_filename not in places:
            frame = frame.f_back
        return frame is not None

    def hook(event: str, args: tuple[typing.Any, ...]) -> None:
        if event == "open":
            if not isinstance(args[2], int) or not args[2] & _WRITES or isinstance(args[0], int):
                return
        elif event not in _PLACES:
            return
        if (me := thread()) in busy:
            return
        busy.add(me)
        try:
            if kept.isdisjoint(named(event, args)):
                return
            if below(files) or (me != main and not below(kept)):
                tell(event)
        except (OSError, ValueError):  # nothing that is there
            return
        finally:
            busy.discard(me)

    if files:
        sys.addaudithook(hook)
