"""The state of a person's repository that an attempt starts from, as values.

Guards against: paths in a commit that lead out of the tree or into ``.git``, links that would be
followed on this machine, filters (contents are those stored, or those on disk), pipes and devices
in the work tree. Links are kept as links, for the box alone, where nothing lies behind them.
"""

import contextlib
import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tadpole.errors import SourceError
from tadpole.grading.patch import in_git_directory, is_plain
from tadpole.repos import files, git
from tadpole.repos.files import Files
from tadpole.task import FileChange
from tadpole.visible import visible
from tadpole.workbench.usergit import TreeEntry, UserGit

LARGEST = 256 << 20  # bytes of one file of the work tree
MOST = 2 << 30  # bytes of all of them


@dataclass(frozen=True)
class Base:
    """Files and links of one state, by path."""

    commit: str  # of HEAD when it was read
    dirty: bool  # True: the work tree, with what was not committed
    files: Files
    links: dict[str, str]  # path -> what the link says
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """64 hex digits that name all of it."""
        total = hashlib.sha256(f"base 1 {files.digest(_encodable(self.files))}\n".encode())
        for path, target in sorted(self.links.items()):
            total.update(os.fsencode(f"{len(path)} {path} {target}\n"))
        return total.hexdigest()

    def leading_out(self) -> list[str]:
        """Links that point to something outside of the repository."""
        found = []
        for path, target in sorted(self.links.items()):
            there = os.path.normpath(os.path.join(os.path.dirname(path), target))
            if target.startswith("/") or there == ".." or there.startswith("../"):
                found.append(path)
        return found


def read_base(repository: UserGit, *, dirty: bool, commit: str = "") -> Base:
    """A commit (empty: HEAD), or the work tree as it lies there. Raises SourceError."""
    commit = commit or repository.head()
    if dirty:
        return _work_tree(repository, commit)
    entries = repository.entries(commit)
    _refuse_odd(entries)
    wanted = [entry for entry in entries if entry.mode != "160000"]
    blobs = repository.blobs(entry.oid for entry in wanted)
    found: Files = {}
    links = {}
    for entry in wanted:
        content = blobs[entry.oid]
        if entry.mode == "120000":
            links[entry.path] = os.fsdecode(content)
        else:
            found[entry.path] = FileChange(entry.path, content, entry.mode == "100755")
    modules = [entry.path for entry in entries if entry.mode == "160000"]
    return Base(
        commit, False, found, links, tuple(f"submodule {visible(m)} left out" for m in modules)
    )


def _refuse_odd(entries: list[TreeEntry]) -> None:
    """Raises SourceError for what git makes no tree of: only an attacker does, by hand."""
    leaves: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        parts = entry.path.split("/")
        folders.update("/".join(parts[:end]) for end in range(1, len(parts)))
        twice = entry.path in leaves
        leaves.add(entry.path)
        if twice or not is_plain(entry.path) or in_git_directory(entry.path):
            raise SourceError(
                f"the commit holds the path {entry.path!r}, which no checkout may write: "
                "do not work on this repository"
            )
    for path in sorted(leaves & folders):
        raise SourceError(
            f"the commit holds {path!r} as a file and as a directory, which no checkout may write: "
            "do not work on this repository"
        )


def _refuse_huge(root: Path, paths: list[str]) -> None:
    """Raises SourceError where the work tree holds far more than source code."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            info = os.lstat(root / path)
            total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    if total > MOST:
        raise SourceError(
            f"the work tree holds {total / 2**30:.1f} GiB that git does not ignore: name what "
            "is no source in .gitignore, or leave --dirty out"
        )


def _work_tree(repository: UserGit, commit: str) -> Base:
    found: Files = {}
    links = {}
    notes = []
    paths = repository.present()
    _refuse_huge(repository.root, paths)
    for path in paths:
        if path.endswith("/"):  # git lists a repository in this one as a directory
            notes.append(f"{path!r} left out: a repository of its own")
            continue
        if not is_plain(path) or in_git_directory(path):
            notes.append(f"{path!r} left out: no checkout may write it")
            continue
        try:
            item = read_path(repository.root, path)
        except FileNotFoundError:
            continue  # deleted, not yet committed
        except OSError as error:
            notes.append(f"{path!r} left out: {error.strerror or error}")
            continue
        if isinstance(item, str):
            links[path] = item
        else:
            found[path] = item
    return Base(commit, True, found, links, tuple(notes))


def read_path(root: Path, path: str) -> FileChange | str:
    """One file below ``root``, or what a link there says; nothing on the way may be a link.

    Raises FileNotFoundError, and OSError for whatever is neither file nor link.
    """
    parts = path.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        info = os.stat(parts[-1], dir_fd=here, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return os.readlink(parts[-1], dir_fd=here)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
            raise OSError(0, "no regular file, or a very large one")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(parts[-1], flags, dir_fd=here), "rb") as stream:
            return FileChange(path, stream.read(), bool(info.st_mode & stat.S_IXUSR))
    except NotADirectoryError:
        raise FileNotFoundError(path) from None
    finally:
        os.close(here)


async def write_tree(base: Base, into: Path) -> None:
    """Write a base as a new directory that is a git repository of one commit.

    Files first, links last: no file is ever written through a link. Raises SourceError.
    """
    into.mkdir(mode=0o755)
    try:
        files.write(into, base.files.values())
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise SourceError("the commit holds a path that is too long to be written here") from None
    for path, target in base.links.items():
        place = into / path
        for folder in reversed(place.relative_to(into).parents):
            if (into / folder).is_symlink():
                raise SourceError(f"{path!r} lies below a link: do not work on this repository")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    await git.one_commit(into)


def _encodable(found: Files) -> Files:
    """With paths that a hash can take: names that are not UTF-8 are escaped."""
    return {os.fsencode(p).decode("utf-8", "backslashreplace"): c for p, c in found.items()}
