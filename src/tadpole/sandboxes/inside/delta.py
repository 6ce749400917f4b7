"""What has changed in the work tree since the box started.

Standard library only and Python 3.6+: this file runs inside the sandbox. The agent owns the
tree, so nothing here follows a symbolic link of it, blocks on a FIFO, or trusts a size.
"""

import os
import stat

import files
from files import DIRECTORY, FILE

LEFT_OUT = frozenset(
    [".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"]
)
# Longer paths could not be named on the host, below a directory of its own.
_LONGEST_PATH, _DEEPEST = 2000, 400
_NAMED = 1000  # of what is left out for one reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Path below the work tree, content (None: deleted), executable.
    Change = tuple[str, bytes | None, bool]


class Delta:
    """What differs between the initial tree and the work tree, regular files only.

    ``max_files`` and ``max_bytes`` bound the result: files of the initial tree come first, new
    ones after them by path. ``left_out`` has by reason how much else differs, and the first of
    it: "room" (too many, too large, too deep), "link" (made, led elsewhere or removed), "kind"
    (a pipe, socket or device), "name" (not UTF-8), "repository" (of git, inside of the tree: its
    files are in, its history is not). Caches, bytecode and the tree's own .git are not told.
    """

    def __init__(self, tree, max_files: int, max_bytes: int) -> None:  # type: ignore[no-untyped-def]
        self._tree, self._max_files, self._room = tree, max_files, max_bytes
        self._upper: set[str] = set()  # where a regular file stands now
        self._lower: set[str] = set()  # regular files of the initial tree that may have changed
        self._links: set[str] = set()  # links of the initial tree that may be gone
        self._linked: set[str] = set()  # where a link stands now
        self.left_out: dict[str, tuple[int, list[str]]] = {}

    def collect(self) -> "list[Change]":
        """A list of (path, content or None, executable), sorted by path."""
        tree = self._tree
        if tree.upper is None:
            top = os.open(tree.workdir, DIRECTORY)
            self._walk_lower("")
        else:
            top = tree.upper
        try:
            self._walk(top, "")
            found: list[Change] = []
            touched = sorted(self._lower)
            for path in touched + sorted(self._upper - self._lower):
                change = self._change(top, path)
                if change is None:
                    continue
                if len(found) >= self._max_files or len(change[1] or b"") > self._room:
                    self._leave("room", path)
                    continue
                self._room -= len(change[1] or b"")
                found.append(change)
            for path in sorted(self._links - self._linked - self._upper):
                self._leave("link", path)
            return sorted(found, key=lambda change: change[0])
        finally:
            if tree.upper is None:
                os.close(top)

    def _change(self, top: int, path: str) -> "Change | None":
        before = after = None
        try:
            before = _opened(self._tree.lower, path) if path in self._lower else None
            after = _opened(top, path) if path in self._upper else None
            if after is None:
                return None if before is None or path in self._upper else (path, None, False)
            executable = bool(os.fstat(after).st_mode & 0o100)
            if before is not None:  # in pieces: either may be of any size
                was = bool(os.fstat(before).st_mode & 0o100)
                if was == executable and _alike(before, after):
                    return None
            return (path, files.content_of(after, self._room), executable)
        except OSError:
            self._leave("room", path)
            return None
        finally:
            for descriptor in (before, after):
                if descriptor is not None:
                    os.close(descriptor)

    def _walk(self, top: int, path: str) -> None:
        """Note everything below ``path`` of the upper directory (or of the copied tree)."""
        for name in _names(top):
            inner = path + "/" + name if path else name
            if name == ".git" and path and _stat(self._tree.lower, inner) is None:
                self._leave("repository", path)
            if name in LEFT_OUT or name.endswith((".pyc", ".pyo")):
                continue
            try:
                long = len(inner.encode("utf-8")) > _LONGEST_PATH or inner.count("/") > _DEEPEST
                info = os.stat(name, dir_fd=top, follow_symlinks=False)
            except UnicodeEncodeError:
                self._leave("name", inner)
                continue
            except OSError:
                continue
            if long:
                self._leave("room", inner)
            elif stat.S_ISDIR(info.st_mode):
                self._enter(top, name, inner)
            elif stat.S_ISREG(info.st_mode):
                self._upper.add(inner)
                self._walk_lower(inner)
            else:  # what stood here before is gone
                self._walk_lower(inner)
                if stat.S_ISLNK(info.st_mode):
                    self._linked.add(inner)
                    if os.readlink(name, dir_fd=top) != _target(self._tree.lower, inner):
                        self._leave("link", inner)
                elif info.st_rdev or not stat.S_ISCHR(info.st_mode):  # else a whiteout
                    self._leave("kind", inner)

    def _leave(self, reason: str, path: str) -> None:
        count, paths = self.left_out.get(reason, (0, []))
        shown = path.encode("utf-8", "backslashreplace").decode("utf-8")
        self.left_out[reason] = (count + 1, [*paths, shown[:200]][:_NAMED])

    def _enter(self, top: int, name: str, path: str) -> None:
        try:
            descriptor = _open_directory(top, name)
        except OSError:
            return
        try:
            # An upper directory merges with one below unless it is opaque.
            if self._tree.upper is not None and (
                _is_opaque(descriptor) or not _is_directory(self._tree.lower, path)
            ):
                self._walk_lower(path)
            self._walk(descriptor, path)
        finally:
            os.close(descriptor)

    def _walk_lower(self, path: str) -> None:
        """Every file and link of the initial tree at or below ``path`` may be gone."""
        info = _stat(self._tree.lower, path)
        if info is None:
            return
        if stat.S_ISREG(info.st_mode):
            self._lower.add(path)
        elif stat.S_ISLNK(info.st_mode):
            self._links.add(path)
        elif stat.S_ISDIR(info.st_mode):
            descriptor = os.open(path or ".", DIRECTORY, dir_fd=self._tree.lower)
            try:
                for name in os.listdir(descriptor):
                    if name not in LEFT_OUT and not name.endswith((".pyc", ".pyo")):
                        self._walk_lower(path + "/" + name if path else name)
            finally:
                os.close(descriptor)


def _names(descriptor: int) -> "list[str]":
    try:
        return sorted(os.listdir(descriptor))
    except OSError:
        return []


def _open_directory(top: int, name: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=top)
    except PermissionError:  # mode 000: it is ours, so we may change that
        os.chmod(name, 0o700, dir_fd=top)
        return os.open(name, DIRECTORY, dir_fd=top)


def _is_opaque(descriptor: int) -> bool:
    try:
        return os.getxattr(descriptor, "user.overlay.opaque") == b"y"
    except OSError:
        return False


def _stat(top: int, path: str) -> "os.stat_result | None":
    """Like lstat, and None also where a directory on the way is a symbolic link."""
    here, parts = os.dup(top), path.split("/") if path else ["."]
    try:
        for part in parts[:-1]:
            inner = os.open(part, DIRECTORY, dir_fd=here)
            os.close(here)
            here = inner
        return os.stat(parts[-1], dir_fd=here, follow_symlinks=False)
    except OSError:
        return None
    finally:
        os.close(here)


def _target(top: int, path: str) -> "str | None":
    """Where a link leads; None where there is none. The tree is the host's: none on the way."""
    try:
        return os.readlink(path, dir_fd=top)
    except OSError:
        return None


def _is_directory(top: int, path: str) -> bool:
    info = _stat(top, path)
    return info is not None and stat.S_ISDIR(info.st_mode)


def _opened(top: int, path: str) -> "int | None":
    """A descriptor of a regular file; None where there is none."""
    here, parts = os.dup(top), path.split("/")
    try:
        for part in parts[:-1]:
            inner = os.open(part, DIRECTORY, dir_fd=here)
            os.close(here)
            here = inner
        try:
            descriptor = os.open(parts[-1], FILE, dir_fd=here)
        except PermissionError:  # closed: it is ours, so we may change that
            mode = os.stat(parts[-1], dir_fd=here, follow_symlinks=False).st_mode
            os.chmod(parts[-1], stat.S_IMODE(mode) | 0o600, dir_fd=here)
            descriptor = os.open(parts[-1], FILE, dir_fd=here)
    finally:
        os.close(here)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _alike(one: int, other: int) -> bool:
    """Whether two files have the same content; both are at their beginning again."""
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    try:
        while True:
            piece = os.read(one, files.CHUNK)
            if piece != os.read(other, files.CHUNK):
                return False
            if not piece:
                return True
    finally:
        os.lseek(one, 0, os.SEEK_SET)
        os.lseek(other, 0, os.SEEK_SET)
