"""The files below a directory."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def files_below(top: str, depth: "int | None" = None) -> "Iterator[str]":
    """Relative paths of the files below ``top``; .git and linked directories are not entered."""
    left = [("", 0)]  # no recursion: a tree may be deeper than Python's stack
    while left:
        inside, level = left.pop()
        try:
            with os.scandir(os.path.join(top, inside)) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:  # closed, gone, or named longer than can be opened
            continue
        below = []
        for entry in entries:
            name = os.path.join(inside, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if entry.name != ".git" and (depth is None or level < depth - 1):
                    below.append((name, level + 1))
            elif _is_file(entry):
                yield name
        left += reversed(below)


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads round in a circle
        return False
