"""What authors wrote, on disk: one file per episode, so that nothing is asked for twice.

::

    drafts/<snapshot key>/0003.json      statement, files and who wrote them

Author models are sampled, so another call would give something else. What was written is kept as
it was left, good or bad, and :class:`tadpole.pilot.proposers.author.Author` proposes it.
"""

import base64
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from tadpole.errors import RunError
from tadpole.outcome import StopReason
from tadpole.rundir import write_atomic
from tadpole.task import FileChange, TaskKind
from tadpole.trace import Record


class Kept(Record):
    """One file of a draft; ``content`` is base64, None where the file was deleted."""

    path: str
    content: str | None
    executable: bool = False

    @classmethod
    def of(cls, change: FileChange) -> "Kept":
        """From a change."""
        content = None if change.content is None else base64.b64encode(change.content).decode()
        return cls(path=change.path, content=content, executable=change.executable)

    @property
    def change(self) -> FileChange:
        """The change."""
        content = None if self.content is None else base64.b64decode(self.content)
        return FileChange(self.path, content, self.executable)


class Draft(Record):
    """How an author's episode ended, and all files that it left changed."""

    format: Literal[1] = 1
    number: int
    kind: TaskKind
    author: str  # fingerprint of the model
    seed: int
    stop: StopReason
    files: tuple[Kept, ...]


class Drafts:
    """The drafts of one snapshot."""

    def __init__(self, directory: Path, snapshot: str) -> None:
        self._place = directory / snapshot[:32]

    def load(self, number: int) -> Draft | None:
        """A draft, None where it is not written yet. Raises RunError where it is damaged."""
        path = self._path(number)
        try:
            return Draft.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise RunError(f"{path} is no draft of this version: remove it") from None

    def save(self, draft: Draft) -> None:
        """Keep a draft, as a whole or not at all."""
        path = self._path(draft.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, draft.model_dump_json().encode())

    def all(self, most: int) -> list[Draft]:
        """The drafts below a number, in order."""
        return [draft for number in range(most) if (draft := self.load(number)) is not None]

    def _path(self, number: int) -> Path:
        return self._place / f"{number:04d}.json"
