"""Tells when changed code looks into the process that tests it. A part of the bootstrap.

Its source is run in the box before that of :mod:`tadpole.grading.bootstrap`, in one namespace with
it. Standard library only, Python 3.8+.

Guards against: changed files that walk frames, collect the process's objects, trace it or read
``/proc``, which is how a report is forged and how the expected value is read out of a test. The
interpreter's audit events say so before it happens; files that did such things before the change
are not listened to. And against new classes whose instances are equal to anything, or to any
number, text or collection. Does not guard against: code that hides which file it comes from, or
that leaves the looking to an unchanged file; instances that become equal to much only later.
"""

from __future__ import annotations

import inspect
import os
import sys
import typing

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Collection

_LOOKS = frozenset(
    {"sys._getframe", "sys._current_frames", "sys._getframemodulename"}
    | {"gc.get_objects", "gc.get_referrers", "gc.get_referents"}
    | {"sys.settrace", "sys.setprofile", "ctypes.dlopen", "ctypes.addressof"}
)
_FRAMES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})


def open_alarm(suspects: Collection[str], tell: Callable[[str], object]) -> None:
    """Call ``tell`` with what code of a suspect file (absolute paths) is about to do."""
    getframe, files = sys._getframe, frozenset(suspects)
    through = frozenset({inspect.__file__})
    inside = False

    def hook(event: str, args: tuple[typing.Any, ...]) -> None:
        nonlocal inside
        if inside:
            return
        if event == "object.__getattr__":
            if args[1] not in _FRAMES:
                return
        elif event == "open":
            if not str(args[0]).startswith("/proc/"):
                return
        elif event not in _LOOKS:
            return
        inside = True
        try:
            frame: typing.Any = getframe(1)
            while frame is not None:
                file = frame.f_code.co_filename
                if file not in through and file[:1] != "<":
                    break
                frame = frame.f_back
            if frame is not None and frame.f_code.co_filename in files:
                tell(event)
        finally:
            inside = False

    if files:
        sys.addaudithook(hook)


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
