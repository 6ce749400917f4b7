"""File operations of the box: copy a tree, read and write.

Standard library only and Python 3.6+: this file runs inside the sandbox. The agent owns the
tree, so nothing here follows a symbolic link of it, blocks on a FIFO, or trusts a size.
"""

import os
import stat

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
CHUNK = 1 << 20


def copy_tree(source: int, target: str) -> None:
    """Copy directories, regular files and links from the descriptor ``source`` into ``target``."""
    destination = os.open(target, DIRECTORY)
    try:
        _copy(source, destination)
    finally:
        os.close(destination)


def _copy(source: int, target: int) -> None:
    for name in os.listdir(source):
        info = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            os.mkdir(name, 0o700, dir_fd=target)
            inner, outer = (
                os.open(name, DIRECTORY, dir_fd=source),
                os.open(name, DIRECTORY, dir_fd=target),
            )
            try:
                _copy(inner, outer)
                os.fchmod(outer, stat.S_IMODE(info.st_mode) | 0o700)
            finally:
                os.close(inner)
                os.close(outer)
        elif stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISREG(info.st_mode):
            read = os.open(name, FILE, dir_fd=source)
            mode = stat.S_IMODE(info.st_mode) | 0o600
            write = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=target)
            try:
                while True:
                    chunk = os.read(read, CHUNK)
                    if not chunk:
                        break
                    _write_all(write, chunk)
                os.fchmod(write, mode & 0o777)
                os.utime(write, ns=(info.st_mtime_ns, info.st_mtime_ns))
            finally:
                os.close(read)
                os.close(write)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_file(path: str, largest: int) -> bytes:
    """The content of a regular file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise FileNotFoundError(2, "not a regular file", path)
        return content_of(descriptor, largest)
    finally:
        os.close(descriptor)


def content_of(descriptor: int, largest: int) -> bytes:
    """All of an open file. Raises OSError where that is more than ``largest`` bytes."""
    if os.fstat(descriptor).st_size > largest:
        raise OSError(27, f"larger than {largest} bytes")
    pieces: list[bytes] = []
    size = 0
    while size <= largest:
        piece = os.read(descriptor, CHUNK)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
    raise OSError(27, f"larger than {largest} bytes")


def write_file(root: str, path: str, content: "bytes | None", *, executable: bool) -> None:
    """Create, replace or (content None) delete the file ``path`` below ``root``.

    Directories that hold no file give way to it. Raises OSError.
    """
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"not a path inside the work tree: {path!r}")
    here = os.open(root, DIRECTORY)
    try:
        for part in parts[:-1]:
            if content is not None:
                try:
                    os.mkdir(part, 0o755, dir_fd=here)
                except FileExistsError:
                    pass
            inner = os.open(part, DIRECTORY, dir_fd=here)
            os.close(here)
            here = inner
        if content is None:
            os.unlink(parts[-1], dir_fd=here)
            return
        descriptor, beside = _beside(here)
        try:
            _write_all(descriptor, content)
            os.fchmod(descriptor, 0o755 if executable else 0o644)
            try:
                os.replace(beside, parts[-1], src_dir_fd=here, dst_dir_fd=here)
            except IsADirectoryError:
                _remove_empty(here, parts[-1])
                os.replace(beside, parts[-1], src_dir_fd=here, dst_dir_fd=here)
        except OSError:
            os.unlink(beside, dir_fd=here)
            raise
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        if content is not None:
            raise
    finally:
        os.close(here)


def _remove_empty(directory: int, name: str) -> None:
    """Remove a directory that holds nothing but such directories. Raises OSError."""
    inner = os.open(name, DIRECTORY, dir_fd=directory)
    try:
        for below in os.listdir(inner):
            _remove_empty(inner, below)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=directory)


def _beside(directory: int) -> "tuple[int, str]":
    """A new file in a directory: what the agent has put there may be a pipe, or a link."""
    number = 0
    while True:
        name = f".box-{os.getpid()}-{number}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            return os.open(name, flags, 0o644, dir_fd=directory), name
        except FileExistsError:
            number += 1
