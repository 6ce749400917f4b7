"""Tells when changed code looks into the process that tests it. A part of the bootstrap.

Its source is run in the box before that of :mod:`tadpole.grading.bootstrap`, in one namespace with
it. Standard library only, Python 3.8+.

Guards against: changed files that walk frames, collect the process's objects, trace it or read
``/proc``, which is how a report is forged and how the expected value is read out of a test. The
interpreter's audit events say so before it happens; files that did such things before the change
are not listened to. Nor does it help them to do it from a file that they write first, or to give
their code the name of another file. And against new classes whose instances are equal to anything,
or to any number, text or collection. And against changed files that write over test files, their
helpers or their data, which would then say something else.

Does not guard against: code that leaves the looking to a function of an unchanged file; instances
that become equal to much only later; files that are written by a program of their own.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import traceback
import typing

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Collection

_LOOKS = frozenset(
    {"sys._getframe", "sys._current_frames", "sys._getframemodulename"}
    | {"gc.get_objects", "gc.get_referrers", "gc.get_referents"}
    | {"sys.settrace", "sys.setprofile", "ctypes.dlopen", "ctypes.addressof", "marshal.loads"}
)
_FRAMES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
_TICK = 20_000_000  # ns: a file system's clock is that much behind, and no more


def open_alarm(
    suspects: Collection[str],
    makers: Collection[str],
    tell: Callable[[str], object],
    busy: list[bool],
) -> None:
    """Call ``tell`` with what code of a suspect file (absolute paths) is about to do.

    ``makers``: those of them that have no business in giving code the name of a file. ``busy``:
    what one hook does itself is nothing to the others; they share it.
    """
    getframe, files, forging = sys._getframe, frozenset(suspects), frozenset(makers)
    through, stat, born = frozenset({inspect.__file__}), os.stat, time.time_ns() - _TICK
    lists = frozenset({traceback.__file__})

    def made_since(file: str) -> bool:
        try:
            return stat(file).st_ctime_ns > born
        except (OSError, ValueError):
            return True

    def looked(event: str, args: tuple[typing.Any, ...]) -> bool:
        if event == "object.__getattr__":
            return args[1] in _FRAMES
        if event == "open":
            return str(args[0]).startswith("/proc/")
        return event in _LOOKS

    def forged(event: str, args: tuple[typing.Any, ...]) -> bool:
        name = args[1] if event in ("compile", "code.__new__") else None
        if not isinstance(name, str) or name[:1] == "<":
            return False
        return name not in files if event == "code.__new__" else not same_text(name, args[0])

    def hook(event: str, args: tuple[typing.Any, ...]) -> None:
        if busy[0] or event not in _HEARD:
            return
        busy[0] = True
        try:
            makes = forged(event, args)
            if not makes and not looked(event, args):
                return
            skipped = through | lists if event == "sys._getframe" else through
            frame: typing.Any = getframe(1)
            if event == "marshal.loads" and frame.f_code.co_filename.startswith(_IMPORTS):
                return
            while frame is not None:
                file = frame.f_code.co_filename
                if file not in skipped and file[:1] != "<":
                    break
                frame = frame.f_back
            if frame is None:
                return
            guilty = file in (forging if makes else files)
            if not guilty and made_since(file):  # whose is it?
                while frame is not None and frame.f_code.co_filename not in files:
                    frame = frame.f_back
                guilty = frame is not None
            if guilty:
                tell(event)
        finally:
            busy[0] = False

    if files:
        sys.addaudithook(hook)


_IMPORTS = "<frozen importlib"
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
# Which of an event's arguments are places that change, or that will have another name to it.
_PLACES = {
    **{"os.rename": (0, 1), "os.link": (0, 1), "os.symlink": (1,)},
    **{"os.remove": (0,), "os.truncate": (0,), "os.rmdir": (0,)},
}


def beside(root: str, ids: list[str]) -> list[str]:
    """The files that lie beside the tests and below, as they are now."""
    top = os.path.realpath(root)
    places = {os.path.dirname(node.split("::", 1)[0]) for node in ids} - {""}
    found = [os.path.join(top, node.split("::", 1)[0]) for node in ids]
    for place in places:
        for folder, _, names in os.walk(os.path.join(top, place)):
            found += [os.path.join(folder, name) for name in names]
    return found


def open_guard(
    changed: Collection[str],
    tests: Collection[str],
    tell: Callable[[str], object],
    busy: list[bool],
) -> None:
    """Call ``tell`` when code of a changed file is about to write over a file of the tests.

    ``changed``: absolute paths. ``tests``: those of all files beside the tests.
    """
    getframe, files, path, fsdecode = sys._getframe, frozenset(changed), os.path, os.fsdecode
    kept = set(tests)
    for file in tests:
        while len(file := path.dirname(file)) > 1:
            kept.add(file)

    def named(event: str, args: tuple[typing.Any, ...]) -> list[str]:
        if event == "open":
            return [path.realpath(fsdecode(args[0]))]
        names = [args[number] for number in _PLACES[event]]
        heads = [path.split(fsdecode(name)) for name in names if isinstance(name, (str, bytes))]
        return [path.join(path.realpath(head), tail) for head, tail in heads]

    def hook(event: str, args: tuple[typing.Any, ...]) -> None:
        if busy[0]:
            return
        if event == "open":
            if not isinstance(args[2], int) or not args[2] & _WRITES:
                return
            if not isinstance(args[0], (str, bytes)):
                return
        elif event not in _PLACES:
            return
        busy[0] = True
        try:
            if kept.isdisjoint(named(event, args)):
                return
            frame: typing.Any = getframe(1)
            while frame is not None and frame.f_code.co_filename not in files:
                frame = frame.f_back
            if frame is not None:
                tell(event)
        finally:
            busy[0] = False

    if files:
        sys.addaudithook(hook)


_HEARD = _LOOKS | {"object.__getattr__", "open", "compile", "code.__new__"}


def same_text(name: str, source: object) -> bool:
    """Whether ``source``, about to be compiled under that name, is what the file holds."""
    try:
        with open(name, "rb") as stream:
            held = stream.read()
    except (OSError, ValueError):
        return False
    if isinstance(source, str):
        return source.split() == held.decode("utf-8", "replace").split()
    return source == held


def probes() -> list[tuple[object, object]]:
    """Pairs of two different values of one kind, which nobody has heard of before."""
    one, other = (int.from_bytes(os.urandom(6), "big") for _ in range(2))
    kinds: tuple[Callable[[int], object], ...] = (
        *(lambda n: object(), lambda n: n, float, str, lambda n: str(n).encode()),
        *(lambda n: [n], lambda n: (n,), lambda n: {n}, lambda n: {n: n}),
    )
    return [(kind(one), kind(other)) for kind in kinds]


def equal_to_all(suspects: Collection[str]) -> str:
    """A class of a suspect file (absolute paths) whose instances are equal to anything, or ""."""
    modules = {
        name
        for name, module in list(sys.modules.items())
        if getattr(module, "__file__", None) in suspects
    }
    queue: list[typing.Any] = [object] if modules else []
    seen = set()
    while queue:
        kind = queue.pop()
        for other in type.__subclasses__(kind):
            if other not in seen:
                seen.add(other)
                queue.append(other)
        if kind.__module__ in modules and "__eq__" in vars(kind):
            try:
                blank = kind.__new__(kind)
            except BaseException:  # it needs more than that
                continue
            for left, right in probes():
                try:
                    if blank == left and blank == right:
                        return str(kind.__qualname__)
                except BaseException:  # it needs more than a blank instance has
                    continue
    return ""
