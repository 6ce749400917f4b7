"""Writes an approved proposal into a person's repository: its work tree, or one new branch.

Guards against: a proposal that nobody approved, that was changed since, that the policy blocks,
or whose base is no longer what is there; writing through a link that leads elsewhere; a work tree
left half changed (every file is written beside its place first, and put back where one cannot be
replaced); hooks, filters and signing programs (git is used for objects only). Nothing is pushed.

Does not guard against: somebody who changes a file in the instant between look and replacement.
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tadpole.errors import UsageError
from tadpole.repos import files
from tadpole.task import FileChange
from tadpole.visible import visible
from tadpole.workbench.base import read_base, read_path
from tadpole.workbench.change import FileDelta
from tadpole.workbench.gate import Verdict
from tadpole.workbench.passport import Ruling
from tadpole.workbench.proposal import Proposal
from tadpole.workbench.usergit import UserGit

TRAILER = "Tadpole-Passport"


def refuse_unready(proposal: Proposal) -> None:
    """Raises UsageError unless a person approved it and nothing blocks."""
    passport = proposal.passport
    decision = passport.decision
    if passport.gate.verdict is Verdict.BLOCK:
        first = passport.gate.blocks[0]
        raise UsageError(
            f"{proposal.id} is blocked ({first.check.value}: {visible(first.message)}): "
            "solve it again, or change .tadpole.toml and commit"
        )
    if decision is None:
        raise UsageError(f"nobody has reviewed {proposal.id} yet: tadpole review {proposal.id}")
    if decision.ruling is not Ruling.APPROVED:
        why = f": {visible(decision.reason)}" if decision.reason else ""
        ruling = decision.ruling.value.replace("_", " ")
        raise UsageError(f"{proposal.id} is not approved but {ruling}{why}")


def moved(proposal: Proposal, repository: UserGit) -> list[str]:
    """What is no longer as it was when the proposal was made, one line each."""
    base = proposal.passport.base
    found = []
    head = repository.head()
    if head != base.commit:
        found.append(f"HEAD was {base.commit[:12]} and is {head[:12]}")
    gone = {file.path for file in proposal.change.files if file.after is None}
    for file in proposal.change.files:
        if (why := _differs(repository.root, file, gone)) is not None:
            found.append(f"{visible(file.path)} {why}")
    return found


class Moved(UsageError):
    """The repository is no longer what a proposal was reviewed on."""


def refuse_moved(proposal: Proposal, repository: UserGit) -> None:
    """Raises Moved, naming what moved and what to type for a re-validation."""
    if found := moved(proposal, repository):
        if all(_is_there(repository.root, file) for file in proposal.change.files):
            raise UsageError(f"{proposal.id} is in the work tree already: nothing is to be done")
        shown = "; ".join(found[:5])
        raise Moved(
            f"not what was reviewed any more: {shown}: check it again with "
            f"tadpole review {proposal.id} --revalidate"
        )


def _differs(root: Path, file: FileDelta, gone: set[str]) -> str | None:
    """How a file is not as it was; ``gone``: what the same change deletes."""
    before = file.side(new=False)
    place = root / file.path
    if before.content is None and place.is_dir() and not place.is_symlink():
        below = (path.relative_to(root).as_posix() for path in place.rglob("*"))
        others = any(path not in gone and not (root / path).is_dir() for path in below)
        return "is a directory with other files in it" if others else None
    try:
        there = read_path(root, file.path)
    except FileNotFoundError:
        return None if before.content is None else "is gone"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if isinstance(there, str):
        return "is a link now"
    if before.content is None:
        return "is there by now"
    if there.content != before.content:
        return "has another content"
    return None if there.executable == before.executable else "has another mode"


def _is_there(root: Path, file: FileDelta) -> bool:
    """Whether a file is as the change leaves it."""
    after = file.side(new=True)
    try:
        there = read_path(root, file.path)
    except FileNotFoundError:
        return after.content is None
    except OSError:
        return False
    return not isinstance(there, str) and (there.content, there.executable) == (
        after.content,
        after.executable,
    )


def to_work_tree(proposal: Proposal, repository: UserGit) -> list[str]:
    """Write the change into the work tree, uncommitted; returns the paths.

    All of it or nothing. Raises UsageError, OSError.
    """
    refuse_unready(proposal)
    refuse_moved(proposal, repository)
    undo: list[Callable[[], None]] = []
    with ExitStack() as opened:
        try:
            # Deletions first: a file may take the place of a directory, and the other way round.
            for file in proposal.change.files:
                if file.after is None:
                    _delete(repository.root, file, undo)
            writes = [change for change in proposal.change.delta if change.content is not None]
            steps = [_prepare(opened, repository.root, change, undo) for change in writes]
            for step in steps:
                step()
        except BaseException:
            for back in reversed(undo):
                with contextlib.suppress(OSError):
                    back()
            raise
    return [file.path for file in proposal.change.files]


def _delete(root: Path, file: FileDelta, undo: list[Callable[[], None]]) -> None:
    """Remove a file, and the directories that it leaves empty."""
    before = file.side(new=False)
    place = root / file.path
    with _folder(root, before, undo) as folder:
        was = os.stat(place.name, dir_fd=folder, follow_symlinks=False)

        def back() -> None:
            files.write(root, [before])
            place.chmod(was.st_mode & 0o777)
            os.utime(place, ns=(was.st_atime_ns, was.st_mtime_ns))

        undo.append(back)
        os.unlink(place.name, dir_fd=folder)
    for parent in place.relative_to(root).parents:
        if parent == Path() or any((root / parent).iterdir()):
            break
        (root / parent).rmdir()


def _prepare(
    opened: ExitStack, root: Path, change: FileChange, undo: list[Callable[[], None]]
) -> Callable[[], None]:
    """Write one file beside its place; the returned step puts it there."""
    assert change.content is not None
    folder = opened.enter_context(_folder(root, change, undo))
    name = change.path.rpartition("/")[2]
    aside, kept = (f".tadpole-{secrets.token_hex(8)}" for _ in range(2))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(aside, flags, 0o777 if change.executable else 0o666, dir_fd=folder)
    undo.append(lambda: _gone(aside, folder))
    there = _lexists(name, folder)
    with open(descriptor, "wb") as stream:
        if there:
            old = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & 0o777
            os.fchmod(stream.fileno(), _mode(old, change.executable))
        stream.write(change.content)
        stream.flush()
        os.fsync(stream.fileno())

    def step() -> None:
        if there:
            os.link(name, kept, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            opened.callback(lambda: _gone(kept, folder))
            undo.append(lambda: os.replace(kept, name, src_dir_fd=folder, dst_dir_fd=folder))
        else:
            undo.append(lambda: _gone(name, folder))
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)

    return step


@contextmanager
def _folder(root: Path, change: FileChange, undo: list[Callable[[], None]]) -> Iterator[int]:
    """A descriptor of the directory of a path, made where missing; no link is followed."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        so_far = root
        for part in change.path.split("/")[:-1]:
            so_far = so_far / part
            try:
                os.mkdir(part, dir_fd=here)
                undo.append(so_far.rmdir)
            except FileExistsError:
                pass
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            except OSError as error:
                raise UsageError(
                    f"{visible(change.path)} cannot be written: {visible(part)} is no plain "
                    f"directory ({error.strerror})"
                ) from None
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _mode(old: int, executable: bool) -> int:
    """The mode of a file that stays: only its executable bits follow the change."""
    plain = old & ~0o111
    return plain | (plain & 0o444) >> 2 if executable else plain


def _lexists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _gone(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def to_branch(proposal: Proposal, repository: UserGit, branch: str, when: str) -> str:
    """Put one commit with the change on a new branch; work tree, index and HEAD stay as they are.

    Returns the commit. Its trailer names the passport. Raises UsageError, SourceError.
    """
    refuse_unready(proposal)
    refuse_moved(proposal, repository)
    if repository.has_branch(branch):
        raise UsageError(f"the branch {branch} is there already: give another --branch")
    commit = proposal.passport.base.commit
    _refuse_uncommitted(proposal, repository, commit)
    person = repository.person()
    changes = []
    for change in proposal.change.delta:
        if change.content is None:
            changes.append(("0", "0" * len(commit), change.path))
        else:
            mode = "100755" if change.executable else "100644"
            changes.append((mode, repository.write_blob(change.content), change.path))
    changes.sort(key=lambda change: change[0] != "0")
    with tempfile.TemporaryDirectory(prefix="tadpole-index-") as scratch:
        tree = repository.write_tree(commit, changes, Path(scratch) / "index")
    made = repository.commit(tree, commit, message(proposal), person, when)
    repository.create_branch(branch, made)
    return made


def _refuse_uncommitted(proposal: Proposal, repository: UserGit, commit: str) -> None:
    """What was made on uncommitted changes has no parent commit to stand on."""
    if not proposal.passport.base.dirty:
        return
    # Not the touched files alone: the rest of the change may need the others, and was judged so.
    if read_base(repository, dirty=False, commit=commit).digest != proposal.passport.base.digest:
        raise UsageError(
            f"{proposal.id} was made on changes that were not committed, which a branch would "
            f"lack: commit them and tadpole review {proposal.id} --revalidate, or apply without "
            "--branch"
        )


def message(proposal: Proposal) -> str:
    """The commit message: the issue's first line, and the trailers."""
    passport = proposal.passport
    first = visible(passport.statement.splitlines()[0].strip())
    subject = first if len(first) <= 72 else first[:69].rstrip() + "..."
    reviewer = passport.decision.reviewer if passport.decision else ""
    lines = [subject, "", f"{TRAILER}: {proposal.id}", f"Reviewed-by: {visible(reviewer)}"]
    return "\n".join(lines) + "\n"
