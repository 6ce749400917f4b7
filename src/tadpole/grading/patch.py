"""Patches in git's format, made from file contents.

Guards against: a patch that does not apply, and code that runs on this machine because git was
started in a tree that an agent has written (hooks, filters, external diff, configuration). Git
only ever sees an empty repository of our own in a temporary directory, and no configuration but
its own; no file of the agent becomes a file on this machine.

Does not guard against: what the patched code does once a person applies and runs it.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tadpole import process
from tadpole.errors import GraderError, UsageError
from tadpole.protocols import LeftOut
from tadpole.task import FileChange

_SECONDS = 120.0
_OUTPUT = 1 << 30  # bytes: a patch is never cut
_DIFF = (
    *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
    *("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3"),
    *("--diff-algorithm=myers", "base", "new", "--"),
)


def git_patch(base: Mapping[str, FileChange], delta: Sequence[FileChange]) -> bytes:
    """The patch that leads from ``base`` to ``base`` with ``delta``, for ``git apply``.

    ``base`` holds the files as they were, by path; files that ``delta`` does not name may be
    left out. Byte-exact: line endings, binary content, executable bits, deletions, odd names. A
    rename is a deletion and an addition. Paths in a ``.git`` directory cannot be in a patch and
    are left out. Raises UsageError for a path that leaves the work directory.
    """
    changes = [change for change in delta if not in_git_directory(change.path)]
    for change in changes:
        if not is_plain(change.path):
            raise UsageError(f"a patch cannot hold the path {change.path!r}: make it relative")
    before = [base[path] for path in sorted({c.path for c in changes} & set(base))]
    with tempfile.TemporaryDirectory(prefix="tadpole-patch-") as directory:
        git = _Git(Path(directory))
        git.run("init", "--quiet", "--bare", "--template=")
        git.run("fast-import", "--quiet", "--done", stdin=_stream(before, changes))
        return git.run(*_DIFF)


def changes_of(patch: bytes, read: Callable[[str], FileChange | None]) -> tuple[FileChange, ...]:
    """The change that a patch makes, the other way round from :func:`git_patch`.

    ``read`` gives the base version of a file, None where there is none; files come sorted by
    path. Raises GraderError where the patch does not apply to them.
    """
    if not patch.strip():
        return ()
    with tempfile.TemporaryDirectory(prefix="tadpole-patch-") as directory:
        git = _Git(Path(directory))
        git.run("init", "--quiet", "--bare", "--template=")
        touched = git.run("apply", "--numstat", "-z", "-", stdin=patch).split(b"\0")
        paths = [os.fsdecode(line.split(b"\t", 2)[2]) for line in touched if line.count(b"\t") > 1]
        before = [file for path in sorted(set(paths)) if (file := read(path)) is not None]
        git.run("fast-import", "--quiet", "--done", stdin=_stream(before, ()))
        git.run("read-tree", "base")
        git.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch)
        tree = git.run("write-tree").decode().strip()
        listed = git.run("diff-tree", "-r", "-z", "--no-renames", "base", tree).split(b"\0")
        changes = []
        for about, path in zip(listed[::2], listed[1::2], strict=False):
            _, mode, _, blob, status = about.split(b" ")
            content = None if status == b"D" else git.run("cat-file", "blob", blob.decode())
            changes.append(FileChange(os.fsdecode(path), content, mode == b"100755"))
        return tuple(sorted(changes, key=lambda change: change.path))


def ignored(rules: Mapping[str, bytes], paths: Iterable[str]) -> frozenset[str]:
    """Which of ``paths`` git would ignore. ``rules``: contents of the .gitignore files by path."""
    # With "./", as git takes a leading ":" for a pathspec's magic and fails.
    asked = b"".join(b"./" + _bytes(path) + b"\0" for path in paths)
    if not asked or not rules:
        return frozenset()
    with tempfile.TemporaryDirectory(prefix="tadpole-ignore-") as directory:
        git = _Git(Path(directory) / ".git")
        git.directory.mkdir()
        git.run("init", "--quiet", "--bare", "--template=")
        for path, content in rules.items():
            if is_plain(path) and PurePosixPath(path).name == ".gitignore":
                file = Path(directory) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        work_tree = ("--work-tree", directory, "-c", "core.bare=false")
        found = git.run(*work_tree, "check-ignore", "--no-index", "-z", "--stdin", stdin=asked)
        return frozenset(os.fsdecode(name[2:]) for name in found.split(b"\0") if name)


def without_ignored(
    delta: Sequence[FileChange], read: Callable[[str], FileChange | None]
) -> tuple[FileChange, ...]:
    """The change as git would record it: new files that .gitignore names are left out.

    ``read`` gives the base version of a file, None where there is none.
    """
    made = [change.path for change in delta if change.content is not None]
    gone = _ignored_of(made, delta, read)
    return tuple(change for change in delta if change.path not in gone)


def worth_telling(
    left_out: Iterable[LeftOut],
    delta: Sequence[FileChange],
    read: Callable[[str], FileChange | None],
) -> tuple[LeftOut, ...]:
    """What a delta could not hold, without what git would not have recorded either.

    ``read`` as for :func:`without_ignored`.
    """
    told = []
    for one in left_out:
        gone = _ignored_of(one.paths, delta, read)
        paths = tuple(path for path in one.paths if path not in gone)
        if one.count > len(gone):
            told.append(replace(one, count=one.count - len(gone), paths=paths))
    return tuple(told)


def _ignored_of(
    paths: Iterable[str],
    delta: Sequence[FileChange],
    read: Callable[[str], FileChange | None],
) -> frozenset[str]:
    """Those that are new and that .gitignore names, as it is after the change."""
    new = [path for path in paths if not read(path)]
    changed = {change.path: change for change in delta}
    rules = {}
    for path in new:
        parts = path.split("/")[:-1]
        for depth in range(len(parts) + 1):
            name = "/".join([*parts[:depth], ".gitignore"])
            file = changed[name] if name in changed else read(name)
            if file is not None and file.content is not None:
                rules[name] = file.content
    return ignored(rules, new)


def file_of(tree: Path, path: str) -> FileChange | None:
    """A regular file of a tree on this machine; None where there is none."""
    file = tree / path
    if file.is_symlink() or not file.is_file():
        return None
    return FileChange(path, file.read_bytes(), bool(file.stat().st_mode & 0o100))


def is_plain(path: str) -> bool:
    """Whether a path is relative and has one spelling: no "..", ".", "//", NUL."""
    return (
        bool(path)
        and "\0" not in path
        and all(part not in ("", ".", "..") for part in path.split("/"))
    )


# Spellings that NTFS and HFS+ fold to .git, which git refuses too.
_GIT = re.compile(r"(\.git|git~1)[. ]*([:\\].*)?", re.IGNORECASE | re.DOTALL)
_UNSEEN = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def in_git_directory(path: str) -> bool:
    """Whether a path lies in a .git directory, in any spelling that a file system may fold."""
    return any(_GIT.fullmatch(part) for part in _UNSEEN.sub("", path).split("/"))


class _Git:
    """Git with nobody's configuration, in a directory of our own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory),
            "LC_ALL": "C",
            "GIT_DIR": str(directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Standard output of one command. Raises GraderError."""
        options = ("-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false")
        finished = process.run(
            ["git", *options, *arguments],
            cwd=self.directory.parent if self.directory.name == ".git" else self.directory,
            env=self._env,
            timeout=_SECONDS,
            stdin=stdin,
            head=_OUTPUT,
        )
        nothing_ignored = "check-ignore" in arguments and finished.code == 1
        if not finished.ok and not nothing_ignored:
            raise GraderError(f"git {arguments[0]} failed: {finished.last_line()}")
        return finished.stdout


def _stream(before: Sequence[FileChange], changes: Sequence[FileChange]) -> bytes:
    parts = [b"feature done\n", *_commit(b"base\nmark :1", b"", before)]
    parts += [*_commit(b"new", b"from :1\n", changes), b"done\n"]
    return b"".join(parts)


def _commit(branch: bytes, parent: bytes, files: Sequence[FileChange]) -> Iterable[bytes]:
    yield b"commit refs/heads/%s\ncommitter t <t@t> 0 +0000\ndata 0\n\n%s" % (branch, parent)
    # Deletions first: a file may take the place of a directory, and the other way round.
    for file in sorted(files, key=lambda file: file.content is not None):
        if file.content is None:
            yield b"D %s\n" % _quoted(file.path)
        else:
            mode = b"100755" if file.executable else b"100644"
            yield b"M %s inline %s\ndata %d\n" % (mode, _quoted(file.path), len(file.content))
            yield file.content + b"\n"
    yield b"\n"


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _quoted(path: str) -> bytes:
    plain = b"%s" % _bytes(path)
    escaped = plain.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%s"' % escaped
