"""A change carried to a base that moved on: files that both sides touched are merged by line.

Guards against: a merge that loses either side (what overlaps is refused), and programs that a
repository names as merge drivers (contents are merged outside of any repository).
"""

import tempfile
from pathlib import Path

from tadpole import process
from tadpole.errors import UsageError
from tadpole.repos import git
from tadpole.task import FileChange
from tadpole.visible import visible
from tadpole.workbench.base import Base
from tadpole.workbench.change import Change, FileDelta, Side

_LARGEST = 64 << 20  # bytes of a merged file


def carried(change: Change, base: Base) -> Change:
    """The same change on ``base``; what is there already is no part of it any more.

    Raises UsageError where it does not fit, or is there as a whole.
    """
    files = []
    clashes = []
    for file in change.files:
        now = base.files.get(file.path)
        there = now or FileChange(file.path, None)
        if there == file.side(new=False):
            files.append(file)
        elif there == file.side(new=True):
            continue
        elif (merged := _merged(file, there)) is not None:
            files.append(FileDelta(path=file.path, before=Side.of(now), after=Side.of(merged)))
        else:
            clashes.append(visible(file.path))
    if clashes:
        raise UsageError(
            f"{', '.join(clashes[:5])} changed in the same place since the proposal was made, so "
            "it does not fit any more: solve it again"
        )
    if not files:
        raise UsageError("all of it is in the repository already: there is nothing to apply")
    return change.model_copy(update={"base": base.digest, "files": tuple(files)})


def _merged(file: FileDelta, there: FileChange) -> FileChange | None:
    """What ``file`` does, done to ``there`` as well; None where both touch the same lines."""
    before, after = file.side(new=False), file.side(new=True)
    contents = (there.content, before.content, after.content)
    if any(content is None or b"\0" in content for content in contents):
        return None
    with tempfile.TemporaryDirectory(prefix="tadpole-merge-") as scratch:
        names = ("theirs", "base", "ours")
        for name, content in zip(names, contents, strict=True):
            (Path(scratch) / name).write_bytes(content or b"")
        argv = ["git", "merge-file", "--stdout", *names]
        done = process.run(
            argv, cwd=Path(scratch), env=git.environment(), timeout=60, head=_LARGEST
        )
    if not done.ok or done.stdout_cut:
        return None
    moded = before.executable != after.executable
    return FileChange(file.path, done.stdout, after.executable if moded else there.executable)
