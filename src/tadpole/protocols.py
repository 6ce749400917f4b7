"""The interfaces between the rooms. Read this page first.

========================  =====================================================================
``SandboxEngine``         starts a :class:`Sandbox`: one isolated work tree with the Leaf tools
``TokenPolicy``           token ids in, sampled token ids and their log-probabilities out
``ChatModel``             messages in, one message out: a server that is only used, not trained
``Proposer``              looks at a snapshot of a repository and proposes candidate tasks
``Grader``                runs a task's hidden tests against a change, in a box of its own
========================  =====================================================================

Each has a scripted double in :mod:`tadpole.scripted`, which tests and users inject.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tadpole.task import FileChange, Task
from tadpole.trace import Grade, Observation, ToolCall

if TYPE_CHECKING:
    import random

    from tadpole.pilot.candidate import Candidate
    from tadpole.repos.snapshot import Snapshot


# --- sandbox ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """Bounds of one sandbox. Sizes are bytes, times seconds."""

    call_seconds: float = 120.0
    memory: int = 2 << 30
    processes: int = 256
    cpu_seconds: int = 3600  # of one command, all its processes together
    disk: int = 1 << 30
    inodes: int = 200_000
    output_head: int = 15_000  # characters kept of each end of a long output
    output_tail: int = 15_000


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox starts from. ``tree`` and ``mounts`` are never written to."""

    tree: Path  # the work tree's initial content, seen at ``workdir``
    mounts: Mapping[str, Path] = field(default_factory=dict)  # path inside -> host path
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/repo"
    limits: Limits = Limits()
    links: Mapping[str, str] = field(default_factory=dict)  # path inside -> where it leads, in /tmp


class ExecReason(StrEnum):
    """Why a command ended: all of these are visible to the model, none is an exception."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CPU = "cpu"
    OUTPUT = "output"
    SIGNAL = "signal"


@dataclass(frozen=True)
class ExecResult:
    """A finished command. Output is decoded with replacement; its middle may be cut."""

    code: int  # exit status; 128 + signal where one ended it
    reason: ExecReason
    stdout: str
    stderr: str
    seconds: float


class LeftOutReason(StrEnum):
    """Why something that differs is in no delta. The text is for a person."""

    ROOM = "too many, too large or too deep"
    LINK = "symbolic link"
    KIND = "pipe, socket or device"
    NAME = "name that is not UTF-8"
    REPOSITORY = "git repository of its own: its files are in, its history is not"


@dataclass(frozen=True)
class LeftOut:
    """What a delta could not hold, for one reason."""

    reason: LeftOutReason
    count: int
    paths: tuple[str, ...]  # the first of them; as texts for a person, not to be opened

    def __str__(self) -> str:
        shown = self.paths[:20]
        more = self.count - len(shown)
        told = f"{self.reason.value}: {', '.join(map(ascii, shown))}"
        return f"{told} and {more} more" if more else told


class Sandbox(Protocol):
    """One isolated work tree. Only files persist between calls.

    Raises :class:`tadpole.errors.SandboxDied` where the box itself is gone.
    """

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one Leaf tool. The model's mistakes come back as an observation."""
        ...

    async def exec(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> ExecResult:
        """Run a program in the work directory; no process of it is left afterwards."""
        ...

    async def read(self, path: str) -> bytes:
        """The content of a regular file, ``path`` relative to the work directory or absolute.

        Raises FileNotFoundError.
        """
        ...

    async def write(self, changes: Sequence[FileChange]) -> None:
        """Delete files of the work tree, then create and replace others."""
        ...

    async def delta(self) -> tuple[FileChange, ...]:
        """What differs from the initial tree: regular files only, sorted by path."""
        ...

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What else differed at the last ``delta``, which is in no change."""
        ...

    async def close(self) -> None:
        """End it. Idempotent; returns when no process is left."""
        ...


class SandboxEngine(Protocol):
    """Starts sandboxes on this machine."""

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Raises SandboxUnavailable (abort) or SandboxStartError (try again)."""
        ...


# --- policy ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampling:
    """The sampling distribution; the defaults are those of training."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    max_tokens: int = 8192


@dataclass(frozen=True)
class Sampled:
    """One sampled turn, the end-of-turn token included where the policy produced it."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # under the sampling distribution, nats
    ended: bool  # False: cut by max_tokens or by the context limit
    version: int  # policy version (number of updates) that sampled it


class TokenPolicy(Protocol):
    """A policy that speaks in token ids."""

    @property
    def fingerprint(self) -> str:
        """Names the weights in force: changes with every update."""
        ...

    async def sample(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int
    ) -> Sampled:
        """Continue ``prompt_ids``. Calls of one ``episode`` extend each other (but where it was
        compacted), so a policy may keep its key-value cache between them. Raises ModelError."""
        ...

    def release(self, episode: str) -> None:
        """The episode is over: forget its cache."""
        ...


class TrainedPolicy(TokenPolicy, Protocol):
    """A policy whose weights a climb replaces."""

    version: int  # updates that the weights in force have seen

    async def renew(self, fingerprint: str, version: int) -> None:
        """Sample from the learner's weights as they are now; returns once they are in force.

        Turns that have begun may end on the old ones. Raises ModelError.
        """
        ...

    async def rest(self) -> None:
        """Give memory back once no turn is open: an update is about to need it."""
        ...


Message = dict[str, Any]  # as in the OpenAI chat interface


@dataclass(frozen=True)
class Reply:
    """One turn of a chat model. Token counts are the server's, None where it gives none."""

    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()  # native calls, sound or not; those in ``text`` are not here
    ended: bool = True  # False: cut by max_tokens or by the context limit
    prompt_tokens: int | None = None
    generated_tokens: int | None = None


class ChatModel(Protocol):
    """A policy that speaks in messages and calls tools natively."""

    @property
    def fingerprint(self) -> str:
        """Names the model."""
        ...

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> Reply:
        """The next assistant turn. Raises ModelError, ContextFull where the prompt is too long."""
        ...


# --- task making and grading -----------------------------------------------------------------


class Proposer(Protocol):
    """Proposes candidate tasks. Seeded: the same snapshot and seed give the same candidates."""

    @property
    def name(self) -> str:
        """Names it and its settings: other candidates, another name."""
        ...

    def propose(self, snapshot: "Snapshot", rng: "random.Random") -> Iterator["Candidate"]:
        """An endless or finite stream; the caller validates each and takes what it needs."""
        ...


class Grader(Protocol):
    """Grades a change to a task's start tree by running its hidden tests."""

    @property
    def trusting(self) -> "Grader":
        """The same grader for changes of our own making: its runs may share a box."""
        ...

    async def grade(self, task: Task, delta: Sequence[FileChange]) -> Grade:
        """Infrastructure failures come back as ``GradeStatus.INVALID``, never as reward 0."""
        ...

    async def oracles(self, task: Task) -> Mapping[str, int] | None:
        """Which deciding test functions can be rewritten, each with the number of its oracle.

        None where this grader rewrites nothing. Raises SandboxError or GraderError.
        """
        ...
