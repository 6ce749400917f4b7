"""Doubles for the protocols, for tests and for trying out a room without the others.

They say and do what they are told. None of them is isolated, measures anything, or stands in
for a real part in a figure that anybody reads.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tadpole.errors import SandboxDied
from tadpole.leaf import toolbox
from tadpole.leaf.dialogue import Dialogue
from tadpole.outcome import GradeStatus
from tadpole.process import Finished, arun, run
from tadpole.protocols import ExecResult, LeftOut, Message, Reply, Sampled, Sampling, SandboxSpec
from tadpole.task import FileChange, Task
from tadpole.trace import Grade, Observation

if TYPE_CHECKING:
    import random

    from tadpole.pilot.candidate import Candidate
    from tadpole.repos.snapshot import Snapshot


class ScriptedPolicy:
    """Says the same turns in every episode, whatever it is asked.

    A turn is a text, a function from the prompt's ids to a text, or an exception to raise; after
    the last one it says ``DONE``. Log-probabilities are all ``logprob``. A text longer than
    ``max_tokens`` is cut, as a model's would be. ``prompts`` keeps what it was asked.
    """

    DONE = "Done."

    def __init__(
        self,
        dialogue: Dialogue,
        turns: Sequence[str | Callable[[Sequence[int]], str] | Exception],
        *,
        logprob: float = -0.5,
        version: int = 0,
    ):
        self._dialogue, self._turns = dialogue, list(turns)
        self._logprob, self.version = logprob, version
        self._at: dict[str, int] = {}
        self.prompts: list[tuple[int, ...]] = []
        self.released: list[str] = []

    @property
    def fingerprint(self) -> str:
        """Changes with ``version``."""
        return f"scripted-{self.version}"

    async def sample(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int
    ) -> Sampled:
        """The next turn of ``episode``; sampling and seed change nothing but the length."""
        self.prompts.append(tuple(prompt_ids))
        at = self._at.get(episode, 0)
        self._at[episode] = at + 1
        turn = self._turns[at] if at < len(self._turns) else self.DONE
        if isinstance(turn, Exception):
            raise turn
        text = turn if isinstance(turn, str) else turn(prompt_ids)
        ids = self._dialogue.write(text)
        kept = tuple(ids[: sampling.max_tokens])
        return Sampled(kept, (self._logprob,) * len(kept), len(kept) == len(ids), self.version)

    def release(self, episode: str) -> None:
        """Begin ``episode`` anew the next time it is asked."""
        self._at.pop(episode, None)
        self.released.append(episode)


class ScriptedChat:
    """Says its replies one after the other, whatever it is asked.

    A reply is a Reply, a text, a function from the messages to either, or an exception to raise;
    after the last one it says ``DONE``. ``asked`` keeps the messages, ``told`` the tools.
    """

    DONE = "Done."
    fingerprint = "scripted-chat"

    def __init__(
        self,
        replies: Sequence[Reply | str | Callable[[Sequence[Message]], Reply | str] | Exception],
    ):
        self._replies = list(replies)
        self.asked: list[tuple[Message, ...]] = []
        self.told: list[tuple[Mapping[str, Any], ...]] = []
        self.samplings: list[Sampling] = []

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> Reply:
        """The next reply; sampling and seed change nothing."""
        at = len(self.asked)
        self.asked.append(tuple(messages))
        self.told.append(tuple(tools))
        self.samplings.append(sampling)
        reply = self._replies[at] if at < len(self._replies) else self.DONE
        if isinstance(reply, Exception):
            raise reply
        said = reply(messages) if callable(reply) else reply
        return Reply(said) if isinstance(said, str) else said


class ScriptedSandbox:
    """The real tools on a temporary directory, with Bash in a plain subprocess.

    NOT isolated: never let it run anything that a model wrote. ``dies_at`` makes the tool call
    with that number (from 0) raise SandboxDied, as a lost box would.
    """

    def __init__(self, files: Mapping[str, bytes | str], *, dies_at: int | None = None):
        self.root = Path(tempfile.mkdtemp(prefix="tadpole-scripted-"))
        self._dies_at = dies_at
        self.calls: list[tuple[str, dict[str, Any]]] = []
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        self._initial = self._files()

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one Leaf tool on the directory."""
        if self._dies_at == len(self.calls):
            raise SandboxDied("the scripted sandbox was told to die here")
        self.calls.append((name, dict(arguments)))
        text, error = await asyncio.to_thread(
            toolbox.call, name, dict(arguments), str(self.root), self._bash
        )
        return Observation(text=text, error=error)

    def _bash(self, command: str, seconds: float) -> dict[str, Any]:
        argv = ["/bin/bash", "-c", command]  # no login: a profile of this machine is none of a box
        plain = {**os.environ, "TERM": "dumb"}  # as in a box: no editor takes the screen
        done = run(argv, cwd=self.root, env=plain, timeout=seconds, head=60_000, tail=60_000)
        return vars(done) | {"reason": done.reason.value}

    async def exec(self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"") -> ExecResult:
        """Run a program in the directory."""
        return _decoded(await arun(argv, cwd=self.root, timeout=timeout, stdin=stdin))

    async def read(self, path: str) -> bytes:
        """The content of a file."""
        return (self.root / path).read_bytes()

    async def write(self, changes: Sequence[FileChange]) -> None:
        """Create, replace or delete files."""
        for change in changes:
            target = self.root / change.path
            if change.content is None:
                target.unlink(missing_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(change.content)
            target.chmod(0o755 if change.executable else 0o644)

    async def delta(self) -> tuple[FileChange, ...]:
        """What differs from the files that it was made with (as `write` has put them)."""
        now = self._files()
        paths = sorted(p for p in {*now, *self._initial} if now.get(p) != self._initial.get(p))
        return tuple(now.get(path) or FileChange(path, None) for path in paths)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Nothing is told here."""
        return ()

    def _files(self) -> dict[str, FileChange]:
        found = {}
        for path in self.root.rglob("*"):
            name = path.relative_to(self.root).as_posix()
            if path.is_file() and not path.is_symlink() and not name.startswith(".git/"):
                mode = bool(path.stat().st_mode & 0o100)
                found[name] = FileChange(name, path.read_bytes(), mode)
        return found

    async def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.root, ignore_errors=True)


class ScriptedEngine:
    """Starts scripted sandboxes on copies of ``spec.tree``; mounts, env and limits are ignored.

    The first box dies at the first of ``dies_at``, and so on; those that follow live.
    """

    def __init__(self, dies_at: Sequence[int | None] = ()) -> None:
        self._dies_at = iter(dies_at)
        self.started: list[ScriptedSandbox] = []

    async def start(self, spec: SandboxSpec) -> ScriptedSandbox:
        """A copy of the tree, NOT isolated."""
        files = {p.relative_to(spec.tree).as_posix(): p for p in spec.tree.rglob("*")}
        content = {name: path.read_bytes() for name, path in files.items() if path.is_file()}
        sandbox = ScriptedSandbox(content, dies_at=next(self._dies_at, None))
        self.started.append(sandbox)
        return sandbox


class ScriptedGrader:
    """Grades by a function of task and change instead of by running tests."""

    def __init__(self, verdict: Callable[[Task, Sequence[FileChange]], bool | Grade]):
        self._verdict = verdict
        self.graded: list[tuple[str, tuple[FileChange, ...]]] = []

    @property
    def trusting(self) -> "ScriptedGrader":
        """Itself: it runs nothing."""
        return self

    async def grade(self, task: Task, delta: Sequence[FileChange]) -> Grade:
        """The verdict, as a GRADED one where it is only true or false."""
        self.graded.append((task.id, tuple(delta)))
        verdict = self._verdict(task, delta)
        if isinstance(verdict, Grade):
            return verdict
        failing = () if verdict else task.fail_to_pass
        return Grade(status=GradeStatus.GRADED, resolved=verdict, failing=failing)

    async def oracles(self, task: Task) -> Mapping[str, int] | None:
        """None: it rewrites nothing."""
        return None


class ScriptedProposer:
    """Proposes the candidates that it was given, in order."""

    name = "scripted"

    def __init__(self, candidates: "Sequence[Candidate]"):
        self._candidates = tuple(candidates)

    def propose(self, snapshot: "Snapshot", rng: "random.Random") -> "Iterator[Candidate]":
        """The candidates; snapshot and seed change nothing."""
        return iter(self._candidates)


def _decoded(done: Finished) -> ExecResult:
    out, err = (data.decode("utf-8", "replace") for data in (done.stdout, done.stderr))
    return ExecResult(done.code, done.reason, out, err, done.seconds)
