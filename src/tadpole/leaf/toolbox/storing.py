"""Files are replaced in one step, and a full disk changes nothing."""

import itertools
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def parents(real: str, shown: str) -> "list[str]":
    """Make the directories of a file, outermost first; all of them or none."""
    missing: list[str] = []
    folder = os.path.dirname(real)
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        name = os.path.basename(folder)
        raise NotADirectoryError(f"{shown}: {name} is a file, and nothing can lie below it")
    made: list[str] = []
    try:
        for folder in reversed(missing):
            os.mkdir(folder)
            made.append(folder)
    except OSError:
        unmake(made)
        raise
    return made


def unmake(folders: "list[str]") -> None:
    """Remove directories that :func:`parents` has made."""
    for folder in reversed(folders):
        os.rmdir(folder)


def store(real: str, data: bytes) -> None:
    """Replace a file's content in one step; its mode is kept, and a full disk changes nothing.

    A file that has other names too (hard links), or whose directory takes no other file, is
    written where it is.
    """
    folder = os.path.dirname(real)
    try:
        info = os.stat(real)
    except FileNotFoundError:
        info = None
    if info is not None and (info.st_nlink > 1 or not os.access(folder, os.W_OK | os.X_OK)):
        return _overwrite(real, data)
    descriptor, part = _beside(folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        if info is not None:
            os.chmod(part, stat.S_IMODE(info.st_mode))
        os.replace(part, real)
    except BaseException:
        os.unlink(part)
        raise


def _beside(folder: str) -> "tuple[int, str]":
    """A new file in a directory; what lies there already is somebody's, whatever its name."""
    for number in itertools.count():
        part = os.path.join(folder, f".leaf-{os.getpid()}-{number}.part")
        try:
            return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), part
        except FileExistsError:
            continue
    raise AssertionError


def _overwrite(real: str, data: bytes) -> None:
    with open(real, "rb+", buffering=0) as file:
        before = file.read()
        try:
            _put(file, data)
        except BaseException:  # a full disk: there was room for what was there
            _put(file, before)
            raise


def _put(file: "Any", data: bytes) -> None:
    view = memoryview(data)
    file.seek(0)
    while view:
        view = view[file.write(view) :]
    file.truncate()
