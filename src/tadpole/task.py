"""A task: what the agent is told, where it starts, and what only the grader knows.

A task holds file *contents*, not diffs, so that nothing depends on a diff applying. Its
identity is the hash of all of it: a changed task is another task.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property

FORMAT = 1


class TaskKind(StrEnum):
    """The five kinds of the published recipe."""

    BUG_FIX = "bug_fix"
    FEATURE = "feature"
    REFACTOR = "refactor"
    MIGRATION = "migration"
    PERFORMANCE = "performance"


@dataclass(frozen=True)
class FileChange:
    """One file of a change: its whole new content, or None where it is deleted."""

    path: str  # relative to the work directory, with forward slashes
    content: bytes | None
    executable: bool = False


@dataclass(frozen=True)
class Source:
    """Where a repository comes from, precise enough to fetch the same bytes again."""

    kind: str  # "pypi", "git" or "directory"
    location: str  # requirement name, URL or path
    version: str  # release or commit
    sha256: str  # of the archive, or of the tree
    licence: str = ""


@dataclass(frozen=True)
class Recipe:
    """How a repository's tests are run; all paths are relative to the work directory."""

    import_paths: tuple[str, ...] = (".",)  # put on sys.path: "." or "src"
    packages: tuple[str, ...] = ()  # top-level packages or modules under test
    test_paths: tuple[str, ...] = ()
    pytest_args: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()  # of the tests, besides pytest
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hint:
    """A statement and its rung on the hint ladder (0 = symptom only)."""

    rung: int
    text: str


@dataclass(frozen=True)
class Provenance:
    """How the task came to be. No text here was written by a model unless ``author`` says so."""

    proposer: str
    operator: str = ""
    seed: int = 0
    edited_files: tuple[str, ...] = ()
    edited_functions: tuple[str, ...] = ()
    author: str = ""  # model that wrote statement, gold or tests; empty for none
    origin: str = ""  # commit whose change was taken back; empty for none


@dataclass(frozen=True)
class Measured:
    """What was measured of the hidden tests when the task was made."""

    mutants: int = 0  # wrong repairs that were graded, the missing one included; 0: not measured
    killed: int = 0  # of these, how many the tests told from the right one
    functions: int = 0  # test functions that decide
    # Test function (node id without parameters) -> number of its oracle that can be rewritten
    # for tier 3; None: not tried.
    oracles: tuple[tuple[str, int], ...] | None = None

    @property
    def kill_rate(self) -> float | None:
        """Share of the wrong repairs that the tests notice; None where not measured."""
        return self.killed / self.mutants if self.mutants else None

    @property
    def rewritable(self) -> float | None:
        """Share of the deciding test functions that can be rewritten; None where not tried."""
        if self.oracles is None or not self.functions:
            return None
        return len(self.oracles) / self.functions


@dataclass(frozen=True)
class Task:
    """One task. ``hints`` are all statements on the ladder; ``rung`` picks the one in force.

    ``start`` leads from the pristine snapshot to the tree where the agent starts (bug put in,
    hidden tests taken out); ``gold`` leads from there to a tree in which all tests pass
    (source files only); ``hidden`` are the whole test files that the grader restores.
    """

    name: str  # readable and unique in its set, e.g. "boltons-0007"
    kind: TaskKind
    source: Source
    snapshot: str  # content hash of the pristine tree
    runtime: str  # content hash of the locked environment
    recipe: Recipe
    start: tuple[FileChange, ...]
    gold: tuple[FileChange, ...]
    hidden: tuple[FileChange, ...]
    fail_to_pass: tuple[str, ...]  # pytest node ids
    pass_to_pass: tuple[str, ...]
    hints: tuple[Hint, ...]
    rung: int
    provenance: Provenance
    test_seconds: float = field(default=60.0, compare=False)  # deadline for one grading run
    measured: Measured = field(default=Measured(), compare=False)

    @property
    def statement(self) -> str:
        """What the agent is told."""
        return next(hint.text for hint in self.hints if hint.rung == self.rung)

    @cached_property
    def id(self) -> str:
        """The first 16 hex digits of the content hash; another rung is another task."""
        body = asdict(self)
        body.pop("test_seconds")
        body.pop("measured")
        if not self.provenance.origin:  # as before there was one
            body["provenance"].pop("origin")
        text = json.dumps(body, sort_keys=True, default=_hashable)
        return hashlib.sha256(f"task {FORMAT} {text}".encode()).hexdigest()[:16]

    def at_rung(self, rung: int) -> "Task":
        """The same code and tests under another statement."""
        return replace(self, rung=rung)


def _hashable(value: object) -> str:
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    raise TypeError(f"cannot hash {type(value).__name__}")
