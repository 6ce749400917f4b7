"""Files of the tree: what they hold, and other ones in their place.

Runs inside the box: standard library only. As a program it puts back what :func:`keep` wrote down,
for a process that was killed before it could.
"""

import base64
import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence


class NoLayout(Exception):
    """Files that cannot stand in one tree: one is where another needs a directory."""


_TAKEN = (FileExistsError, IsADirectoryError, NotADirectoryError)


@contextlib.contextmanager
def changed(
    files: Sequence[tuple[str, "str | None", bool]], others: Sequence[str] = ()
) -> Iterator[None]:
    """Put files into the tree while the block runs, and then back what was there.

    ``files``: (path, content in base64 or None for none, executable). ``others`` are put back too.
    Raises NoLayout.
    """
    paths = dict.fromkeys([*(path for path, *_ in files), *others])
    before = [(path, *_content(path)) for path in paths]
    try:
        try:
            _put([(path, _bytes(text), executable) for path, text, executable in files])
        except _TAKEN as error:
            raise NoLayout(str(error)) from error
        yield
    finally:
        _put(before)


def _bytes(text: "str | None") -> "bytes | None":
    return None if text is None else base64.b64decode(text)


def keep(paths: Iterable[str], kept: str) -> None:
    """Write down what these files hold, in ``kept``, a file that is whole or not there."""
    before = [(path, *_content(path)) for path in dict.fromkeys(paths)]
    rows = [
        (path, None if content is None else base64.b64encode(content).decode(), executable)
        for path, content, executable in before
    ]
    with open(kept + ".part", "w", encoding="utf-8") as file:
        json.dump(rows, file)
    os.replace(kept + ".part", kept)


def put_back(kept: str) -> None:
    """Put back what :func:`keep` wrote down; nothing where it never came that far."""
    with contextlib.suppress(FileNotFoundError), open(kept, encoding="utf-8") as file:
        _put([(path, _bytes(text), executable) for path, text, executable in json.load(file)])


def _content(path: str) -> "tuple[bytes | None, bool]":
    try:
        with open(path, "rb") as file:
            return file.read(), bool(os.stat(path).st_mode & 0o100)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None, False


def _put(files: "Sequence[tuple[str, bytes | None, bool]]") -> None:
    # Deletions first: a file may take the place of a directory, and the other way round.
    for path, content, executable in sorted(files, key=lambda file: file[1] is not None):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            os.unlink(path)
        if content is not None:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            if os.path.isdir(path):
                _remove_empty(path)
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, 0o755 if executable else 0o644)


def _remove_empty(path: str) -> None:
    """Remove a directory that holds nothing but such directories; else IsADirectoryError."""
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            raise IsADirectoryError(errno.EISDIR, "a directory that holds files", path) from None


if __name__ == "__main__":
    put_back(sys.argv[1])
