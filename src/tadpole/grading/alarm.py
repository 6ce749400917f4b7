"""Tells when changed code looks into the process that tests it. A part of the bootstrap.

Its source is run in the box before that of :mod:`tadpole.grading.bootstrap`, in one namespace with
it. Standard library only, Python 3.8+.

Guards against: changed files that walk frames, collect the process's objects, trace it or read
``/proc``, which is how a report is forged and how the expected value is read out of a test. The
interpreter's audit events say so before it happens; files that did such things before the change
are not listened to. Nor does it help them to do it from a file that they write first, or to give
their code the name of another file. And against new classes whose instances are equal to anything,
or to any number, text or collection, however they are made and whatever module they name.

Does not guard against: code that leaves the looking to a function of an unchanged file; instances
that become equal to much only later.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
import time
import traceback
import typing
import zipimport

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
    known: Collection[str],
    tell: Callable[[str], object],
    busy: set[int],
) -> None:
    """Call ``tell`` with what code of a suspect file (absolute paths) is about to do.

    ``makers``: those of them that have no business in giving code the name of a file. ``known``:
    files that no change wrote, however new they are. ``busy``: threads in a hook; what
    one does itself is nothing to the others, which share it.
    """
    getframe, files, forging = sys._getframe, frozenset(suspects), frozenset(makers)
    through, stat, born = frozenset({inspect.__file__}), os.stat, time.time_ns() - _TICK
    lists = frozenset({traceback.__file__})
    thread, library = threading.get_ident, os.path.dirname(os.__file__) + "/"

    def made_since(file: str) -> bool:
        try:
            return file not in known and stat(file).st_ctime_ns > born
        except (OSError, ValueError):
            return True

    def standard(file: str) -> bool:
        return file.startswith(library) and "-packages/" not in file

    def looked(event: str, args: tuple[typing.Any, ...]) -> bool:
        if event == "object.__getattr__":
            return args[1] in _FRAMES
        return event == "open" or event in _LOOKS

    def forged(event: str, args: tuple[typing.Any, ...]) -> bool:
        name = args[1] if event in ("compile", "code.__new__") else None
        if not isinstance(name, str) or name[:1] == "<":
            return False
        return name not in files if event == "code.__new__" else not same_text(name, args[0])

    def hook(event: str, args: tuple[typing.Any, ...]) -> None:
        if event not in _HEARD or (me := thread()) in busy:
            return
        busy.add(me)
        try:
            makes = forged(event, args)
            if not makes and not looked(event, args):
                return
            skipped = through | lists if event == "sys._getframe" else through
            opens = event == "open"
            frame: typing.Any = getframe(1)
            if event == "marshal.loads" and frame.f_code.co_filename.startswith(_IMPORTS):
                return
            while frame is not None:
                file = frame.f_code.co_filename
                if not (file in skipped or file[:1] == "<" or (opens and standard(file))):
                    break
                frame = frame.f_back
            if frame is None:
                return
            guilty = file in (forging if makes else files)
            if not guilty and made_since(file):  # whose is it?
                while frame is not None and frame.f_code.co_filename not in files:
                    frame = frame.f_back
                guilty = frame is not None
            if guilty and (not opens or below_proc(args)):  # resolved where it matters only
                tell(event)
        finally:
            busy.discard(me)

    if files:
        sys.addaudithook(hook)


def spots(name: object, dir_fd: object = -1, anywhere: bool = False) -> list[str]:
    """Absolute paths that a name in an audit event can mean; links in them are not followed.

    ``anywhere``: the event does not say where a relative one begins (``os.open``): at any directory
    that is open.
    """
    if isinstance(name, int):
        return [os.readlink(f"/proc/self/fd/{name}")]
    if not isinstance(name, (str, bytes, os.PathLike)):
        return []
    text = os.fsdecode(name)
    if text[:1] == "/":
        return ["/" + text.lstrip("/")]
    bases = [os.getcwd()]
    if isinstance(dir_fd, int) and dir_fd >= 0:
        bases = [os.readlink(f"/proc/self/fd/{dir_fd}")]
    elif anywhere:
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the listing itself is one
                bases.append(os.readlink(f"/proc/self/fd/{number}"))
    return [os.path.join(base, text) for base in bases]


def below_proc(args: tuple[typing.Any, ...]) -> bool:
    """Whether an event ``open`` is of something in ``/proc``, however it is spelled."""
    try:
        found = spots(args[0], anywhere=args[1] is None)
    except (OSError, ValueError):
        return False
    return any(
        (path + "/").startswith("/proc/")
        for spot in found
        for path in (os.path.normpath(spot), os.path.realpath(spot))
    )


_IMPORTS = "<frozen importlib"
_HEARD = _LOOKS | {"object.__getattr__", "open", "compile", "code.__new__"}


def same_text(name: str, source: object) -> bool:
    """Whether ``source``, about to be compiled under that name, is what the file holds, or the
    archive that it lies in.
    """
    try:
        with open(name, "rb") as stream:
            held = stream.read()
    except NotADirectoryError:
        try:
            held = zipimport.zipimporter(os.path.dirname(name)).get_data(name)
        except (OSError, ImportError):
            return False
        if isinstance(source, bytes):  # as it is read out of there: with plain line ends
            return source.split() == held.split()
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
    queue: list[typing.Any] = [object] if suspects else []
    seen = set()
    while queue:
        kind = queue.pop()
        for other in type.__subclasses__(kind):
            if other not in seen:
                seen.add(other)
                queue.append(other)
        space = vars(kind)
        if "__eq__" not in space:
            continue
        with contextlib.suppress(Exception):  # what is odd about other classes is not ours
            named = space.get("__module__") in modules
            if (named or _written_in(space["__eq__"], suspects)) and _equals(kind):
                return str(kind.__qualname__)
    return ""


def _written_in(method: typing.Any, suspects: Collection[str]) -> bool:
    """Whether a method's code is of those files, or was made at run time, by whomever."""
    for _ in range(4):  # a mock has whatever is asked of it
        if hasattr(method, "__code__"):
            break
        method = getattr(method, "func", None) or getattr(method, "__func__", None)
    file = method.__code__.co_filename
    return file in suspects or file[:1] == "<"


def _equals(kind: typing.Any) -> bool:
    """Whether instances are equal to two unlike values: blank ones, else of a few arguments."""
    for instance in _instances(kind):
        whole = True
        for left, right in probes():
            try:
                if instance == left and instance == right:
                    return True
            except BaseException:  # it needs more than this one has
                whole = False
        if whole:
            return False
    return False


def _instances(kind: typing.Any) -> typing.Iterator[object]:
    makers = [functools.partial(base.__new__, kind) for base in kind.__mro__]
    # Small values: what takes a size makes little of it.
    makers += [functools.partial(kind, *[value] * n) for n in (0, 1, 2, 3) for value in (1, "1")]
    for make in makers:
        made: object = None
        with contextlib.suppress(BaseException):  # it takes others
            made = make()
        if kind in type(made).__mro__:
            yield made
