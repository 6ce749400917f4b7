"""A proposed change: each touched file before and after, from which all else is derived.

Patch, review and application come from these same bytes, so that what a person approves is what
is written.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Literal

from tadpole.errors import RunError
from tadpole.grading.patch import git_patch, ignored, in_git_directory
from tadpole.task import FileChange
from tadpole.trace import Record
from tadpole.workbench.base import Base


class Side(Record):
    """One state of a file; ``content`` is base64."""

    content: str
    executable: bool = False

    @classmethod
    def of(cls, file: FileChange | None) -> "Side | None":
        """The state of a file; None where there is none."""
        if file is None or file.content is None:
            return None
        return cls(content=base64.b64encode(file.content).decode(), executable=file.executable)

    @property
    def data(self) -> bytes:
        """The bytes."""
        return base64.b64decode(self.content)


class FileDelta(Record):
    """One touched file. ``before`` None: it is new; ``after`` None: it is deleted."""

    path: str
    before: Side | None = None
    after: Side | None = None

    def side(self, new: bool) -> FileChange:
        """The file as a value: content None where it is not there."""
        side = self.after if new else self.before
        return FileChange(self.path, side.data if side else None, bool(side and side.executable))

    @property
    def binary(self) -> bool:
        """Whether one of its states is no text."""
        return any(side is not None and b"\0" in side.data for side in (self.before, self.after))


class Change(Record):
    """All touched files, sorted by path, on a base."""

    format: Literal[1] = 1
    base: str  # digest of the base
    files: tuple[FileDelta, ...]
    left_out: tuple[str, ...] = ()  # touched, but of a kind that no patch holds

    @property
    def id(self) -> str:
        """16 hex digits: names base and content; the same change is the same proposal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @property
    def delta(self) -> tuple[FileChange, ...]:
        """What leads from the base to the patched tree."""
        return tuple(file.side(new=True) for file in self.files)

    def patch(self) -> bytes:
        """The same for ``git apply``. Raises GraderError where git itself fails."""
        base = {f.path: f.side(new=False) for f in self.files if f.before is not None}
        return git_patch(base, self.delta)


def change_of(base: Base, delta: Sequence[FileChange]) -> Change:
    """The change that a box left behind; what is the same as before is no part of it.

    Nor are new files that the repository's own rules ignore: what builds and tests leave.
    """
    files, odd = [], []
    rules = {
        path: file.content or b""
        for path, file in base.files.items()
        if PurePosixPath(path).name == ".gitignore"
    }
    new = [change.path for change in delta if change.path not in base.files]
    away = ignored(rules, new)
    for change in sorted(delta, key=lambda change: change.path):
        if change.path in away:
            continue
        before = base.files.get(change.path)
        if in_git_directory(change.path) or change.path in base.links:
            odd.append(change.path)
        elif before != change and not (before is None and change.content is None):
            files.append(FileDelta(path=change.path, before=Side.of(before), after=Side.of(change)))
    return Change(base=base.digest, files=tuple(files), left_out=tuple(odd))


def python_files(files: Iterable[FileDelta]) -> list[FileDelta]:
    """Those that are Python source."""
    return [file for file in files if file.path.endswith((".py", ".pyi"))]


def parse_change(text: bytes, where: str) -> Change:
    """Read a change. Raises RunError."""
    try:
        return Change.model_validate_json(text)
    except ValueError as error:
        line = str(error).splitlines()[0]
        raise RunError(
            f"{where} is damaged or of another version ({line}): make the proposal again with "
            "tadpole solve"
        ) from None
