"""The files of a tree: read from a directory or an archive, hashed, written, linked.

Guards against: archives and links that reach outside, bytecode and build leftovers that would
give an answer away, modes and owners that a sandboxed user cannot read. Links inside the tree
become copies; devices, sockets and pipes are never opened.
"""

import hashlib
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path, PurePosixPath

from tadpole.errors import SourceError
from tadpole.task import FileChange

Files = dict[str, FileChange]  # by path; contents are never None

_CLOCK = 1_577_836_800  # 2020-01-01, so that no build date is told
_TOOL_CACHES = (
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".coverage",
    "htmlcov",
)
_SKIPPED = frozenset(
    (
        "__pycache__",
        "node_modules",
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".nox",
        ".venv",
        "venv",
        ".eggs",
        *_TOOL_CACHES,
    )
)
_SKIPPED_AT_TOP = frozenset({"build", "dist"})


def wanted(path: str) -> bool:
    """Whether a file belongs to a pristine tree: no caches, bytecode, or build results."""
    parts = PurePosixPath(path).parts
    return not (
        _SKIPPED.intersection(parts)
        or path.endswith((".pyc", ".pyo"))
        or any(part.endswith(".egg-info") for part in parts)
        or (len(parts) > 1 and parts[0] in _SKIPPED_AT_TOP)
    )


class Astray(StrEnum):
    """Why something below a directory is no file of its tree. The text is for a person."""

    OUTSIDE = "a link that leads out of it, or nowhere"
    LOOP = "a link to a directory that it lies in"
    KIND = "a pipe, socket or device"


def from_directory(root: Path) -> Files:
    """Every wanted regular file below a directory. What else is there: :func:`astray`."""
    found: Files = {}
    for path, real, why in _below(root):
        if why is None:
            executable = bool(real.stat().st_mode & stat.S_IXUSR)
            found[path] = FileChange(path, real.read_bytes(), executable)
    return found


def astray(root: Path) -> dict[str, Astray]:
    """What is left out although it is wanted, by path."""
    return {path: why for path, _, why in _below(root) if why is not None}


def _below(root: Path) -> Iterator[tuple[str, Path, Astray | None]]:
    """Wanted paths below a directory, each with what it stands for; directories are gone into,
    also where a link leads to them.
    """
    root = Path(os.path.realpath(root))
    waiting = [("", root, frozenset({root}))]  # path, the directory, and those that it is in
    while waiting:
        above, folder, around = waiting.pop()
        for name in _names(folder):
            path, real = above + name, Path(os.path.realpath(folder / name))
            inside = real.is_relative_to(root)
            if inside and real.is_dir():
                # A link may give another name to what is not wanted.
                names = (f"{path}/x", f"{real.relative_to(root).as_posix()}/x")
                if real in around and wanted(names[0]):
                    yield path, real, Astray.LOOP
                elif all(map(wanted, names)):
                    waiting.append((f"{path}/", real, around | {real}))
            elif wanted(path):
                yield path, real, _kind(real) if inside else Astray.OUTSIDE


def _kind(real: Path) -> Astray | None:
    """What something in the tree is, links followed as far as they lead; None: a regular file."""
    mode = _mode(real)
    if not mode or stat.S_ISLNK(mode):  # a link to itself leads nowhere either
        return Astray.OUTSIDE
    return None if stat.S_ISREG(mode) else Astray.KIND


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # not ours to read
        return []


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except (OSError, ValueError):
        return 0


def from_archive(archive: Path) -> Files:
    """Every wanted regular file of a source distribution, without its top directory.

    Raises SourceError where a name reaches outside, or the file is no archive.
    """
    try:
        members = _zip(archive) if archive.suffix == ".zip" else _tar(archive)
        found: Files = {}
        for name, executable, content in members:
            parts = PurePosixPath(name).parts
            if name.startswith("/") or ".." in parts or "\0" in name:
                raise SourceError(f"{archive.name} has a file outside of itself: {name!r}")
            path = "/".join(parts[1:])
            if path and wanted(path):
                found[path] = FileChange(path, content, executable)
        return found
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise SourceError(f"{archive.name} cannot be unpacked ({error}): fetch it again") from None


def _tar(archive: Path) -> Iterator[tuple[str, bool, bytes]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() or member.islnk() else None
            if file is not None:
                yield member.name, bool(member.mode & stat.S_IXUSR), file.read()


def _zip(archive: Path) -> Iterator[tuple[str, bool, bytes]]:
    with zipfile.ZipFile(archive) as pack:
        for item in pack.infolist():
            if not item.is_dir():
                yield item.filename, bool(item.external_attr >> 16 & stat.S_IXUSR), pack.read(item)


def digest(files: Files) -> str:
    """64 hex digits that name paths, contents and executable bits."""
    total = hashlib.sha256(b"tree 1\n")
    for path in sorted(files):
        change = files[path]
        content = hashlib.sha256(change.content or b"").hexdigest()
        total.update(f"{content} {int(change.executable)} {len(path)} {path}\n".encode())
    return total.hexdigest()


def write(root: Path, changes: Iterable[FileChange]) -> None:
    """Create, replace or delete files below ``root``; whatever was linked there is let go."""
    for change in changes:
        path = root / change.path
        path.unlink(missing_ok=True)
        if change.content is None:
            continue
        for folder in reversed(path.relative_to(root).parents):
            if not (root / folder).is_dir():
                (root / folder).mkdir(parents=True)
                (root / folder).chmod(0o755)
        path.write_bytes(change.content)
        path.chmod(0o755 if change.executable else 0o644)
        os.utime(path, (_CLOCK, _CLOCK))


def link(source: Path, target: Path, skip: Iterable[str] = ()) -> None:
    """Copy a pristine tree without copying its bytes: nothing may write to either in place."""
    away = set(skip)
    for folder, names, leaves in os.walk(source):
        here = Path(folder).relative_to(source)
        (target / here).mkdir()
        (target / here).chmod(0o755)
        names.sort()
        for leaf in leaves:
            if (here / leaf).as_posix() not in away:
                _link(source / here / leaf, target / here / leaf)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or too many links
        target.write_bytes(source.read_bytes())
        target.chmod(stat.S_IMODE(source.stat().st_mode))
        os.utime(target, (_CLOCK, _CLOCK))
