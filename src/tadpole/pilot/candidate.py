"""A candidate: one proposed change of a repository, before anything was run."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from tadpole.task import FileChange, TaskKind


@dataclass(frozen=True)
class Site:
    """One splice of a source file: the pristine text ``old`` became the buggy text ``new``.

    ``offset`` counts characters of the decoded pristine file, line endings as they are there;
    ``lines`` are the 1-based lines whose execution means that the site was reached.
    """

    path: str
    offset: int
    old: str
    new: str
    line: int
    lines: tuple[int, ...]

    @property
    def end(self) -> int:
        """One past the last character of ``old``."""
        return self.offset + len(self.old)


@dataclass(frozen=True)
class Candidate:
    """What a proposer hands over. ``changes`` lead from the pristine tree to the buggy one."""

    proposer: str
    operator: str
    changes: tuple[FileChange, ...]
    functions: tuple[str, ...]  # qualified names inside their files, e.g. "Class.method"
    sites: tuple[Site, ...]
    seed: int = 0
    kind: TaskKind = TaskKind.BUG_FIX
    request: str = ""  # what is asked for; empty where only the symptom is known
    parts: tuple["Candidate", ...] = ()  # the bugs of a composed one, none of them composed
    origin: str = ""  # the commit whose change is taken back; empty for none

    @property
    def files(self) -> tuple[str, ...]:
        """Edited source files, sorted, each once."""
        return tuple(sorted({change.path for change in self.changes}))

    @cached_property
    def key(self) -> str:
        """Names the change itself: 16 hex digits over operator, paths and new contents."""
        digest = hashlib.sha256(f"candidate 1 {self.operator}".encode())
        for change in sorted(self.changes, key=lambda change: change.path):
            body = b"-" if change.content is None else hashlib.sha256(change.content).digest()
            digest.update(change.path.encode() + b"\0" + body)
        return digest.hexdigest()[:16]
