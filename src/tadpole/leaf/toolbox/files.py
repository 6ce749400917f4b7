"""Files of the work tree: where a path leads, and their bytes as text."""

import itertools
import os
import re
import stat

from .tree import files_below

BOM = b"\xef\xbb\xbf"
FILE_BYTES = 50 << 20


def resolve(workdir: str, path: str) -> "tuple[str, str]":
    """``(real path, path as it is shown)``; raises PermissionError for what is outside."""
    asked = os.path.normpath(os.path.join(workdir, os.path.expanduser(path)))
    real, root = os.path.realpath(asked), os.path.realpath(workdir)
    if not (_inside(real, root) or _inside(real, os.path.realpath("/tmp"))):
        raise PermissionError(f"{path} is outside; use paths under {workdir} (or under /tmp)")
    for top, name in ((os.path.normpath(workdir), asked), (root, real)):
        if _inside(name, top):
            return real, os.path.relpath(name, top)
    return real, real


def _inside(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def load(workdir: str, real: str, shown: str) -> bytes:
    """The bytes of a text file. Raises OSError, ValueError for what is none."""
    try:
        info = os.stat(real)
    except FileNotFoundError:
        names = _near(workdir, os.path.basename(real))
        hint = "; did you mean {}?".format(" or ".join(names)) if names else "; find it with Glob"
        raise FileNotFoundError(f"there is no file {shown}{hint}") from None
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(f"{shown} is a directory; list it with Glob")
    if not stat.S_ISREG(info.st_mode):
        raise ValueError(f"{shown} is no regular file (a pipe, socket or device)")
    if info.st_size > FILE_BYTES:
        raise ValueError(f"{shown} has {info.st_size:,} bytes, too many; use Bash")
    with open(real, "rb") as file:
        data = file.read()
    if b"\0" in data:
        raise ValueError(f"{shown} is binary, {len(data):,} bytes")
    return data


def decode(data: bytes) -> str:
    """As text, without the byte order mark; bytes that are not UTF-8 are lone surrogates."""
    return data[len(BOM) if data.startswith(BOM) else 0 :].decode("utf-8", "surrogateescape")


def visible(line: str) -> str:
    """A line as the model is shown it: bytes that are not UTF-8 as ``\\xNN``."""
    line = line[:-1] if line.endswith("\r") else line
    return re.sub("[\udc80-\udcff]", lambda byte: "\\x%02x" % (ord(byte.group()) - 0xDC00), line)


def _near(workdir: str, name: str) -> "list[str]":
    files = list(itertools.islice(files_below(os.path.realpath(workdir)), 20000))
    same = [path for path in files if os.path.basename(path) == name]
    if not same:
        import difflib

        close = difflib.get_close_matches(name, {os.path.basename(path) for path in files}, 3, 0.6)
        same = [path for path in files if os.path.basename(path) in close]
    return same[:3]
