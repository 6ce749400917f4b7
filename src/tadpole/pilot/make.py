"""Makes a set of validated tasks from repositories: deterministic, in parallel, resumable.

Each source has a stream of candidates; two of them are validated at a time, and verdicts are
taken in the order of proposal, so that neither timing nor a crash changes the outcome. Sources
share the count evenly; what one cannot give, the others do.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tadpole.errors import GraderError, SandboxDied, SandboxStartError, UsageError
from tadpole.pilot import taskdir
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.journal import SETTINGS, TABLE, Making, Step
from tadpole.pilot.singlesite import SingleSite, Style
from tadpole.pilot.split import SourceFile
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.progress import Bar, Progress
from tadpole.protocols import Grader, Proposer, SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.together import end, together

RETRIES = 2  # of a candidate whose validation infrastructure broke
WORKERS = 2


@dataclass(frozen=True)
class _Judged:
    candidate: Candidate
    task: Task | None
    reason: DropReason | None
    seconds: float


@dataclass
class _Stream:
    """One source on its way."""

    source: str
    snapshot: Snapshot
    name: str
    candidates: Iterator[Candidate]
    index: int = 0  # candidates judged and written down
    kept: list[Task] = field(default_factory=list)
    ahead: deque[Candidate] = field(default_factory=deque)  # taken, and not judged yet
    ended: bool = False

    @property
    def dry(self) -> bool:
        """Nothing more will come."""
        return self.ended and not self.ahead

    def look(self, number: int) -> None:
        """Take candidates until ``number`` of them are ahead, or none is left."""
        while not self.ended and len(self.ahead) < number:
            candidate = next(self.candidates, None)
            if candidate is None:
                self.ended = True
            else:
                self.ahead.append(candidate)


async def make_tasks(
    sources: Sequence[str],
    *,
    count: int,
    seed: int,
    store: Store,
    engine: SandboxEngine,
    grader: Grader,
    out: Path,
    progress: Progress,
    max_dictated_chars: int = 0,
    proposer: Proposer | None = None,
    validator: Validator | None = None,
    rules: Rules | None = None,
    closed: Collection[SourceFile] = (),
) -> list[Task]:
    """Make ``count`` tasks into ``out``, or fewer where the sources give no more.

    ``max_dictated_chars`` asks for edits inside one line whose old and new text are that short
    (0: any edit); ``rules`` say what makes a task; no file of ``closed`` is edited. Calling it
    again with the same ``out`` goes on where it stopped.

    Raises UsageError where ``out`` belongs to other settings, SourceError for a source that
    cannot become a snapshot, and SandboxError or GraderError where validation keeps breaking.
    """
    style = Style.LINE if max_dictated_chars else Style.ANY
    chosen = proposer or SingleSite(style=style, max_dictated=max_dictated_chars)
    out.mkdir(parents=True, exist_ok=True)
    run = RunDir(out)
    with run.lock(), progress.task("make tasks", total=count) as bar:
        making = _Making(run, validator or Validator(store, engine, grader, rules), bar)
        streams: list[_Stream] = []
        for source in dict.fromkeys(sources):
            bar.update(note=f"reading {source}")
            snapshot = await store.snapshot(source)
            taken = {stream.name for stream in streams}
            name = snapshot.name
            if name in taken:
                name = f"{name}-{len(streams) + 1}"
            proposed = chosen.propose(snapshot, random.Random(f"{seed} {source}"))
            candidates = _outside(proposed, snapshot.source.location, closed)
            stream = _Stream(source, snapshot, name, candidates)
            settings = Making(
                source=source,
                snapshot=snapshot.key,
                seed=seed,
                proposer=chosen.name,
                max_dictated=max_dictated_chars,
                mutants=making.validator.rules.mutants,
                min_kill_rate=making.validator.rules.min_kill_rate,
            )
            making.resume(stream, settings)
            streams.append(stream)
        await making.share(streams, count)
    return [task for stream in streams for task in stream.kept]


class _Making:
    def __init__(self, run: RunDir, validator: Validator, bar: Bar) -> None:
        self.run = run
        self.validator = validator
        self.bar = bar
        self.free = asyncio.Semaphore(WORKERS)

    def resume(self, stream: _Stream, settings: Making) -> None:
        """Take over what the journal already says of a source."""
        known = {row.source: row for row in self.run.rows(SETTINGS, Making)}
        if stream.source not in known:
            self.run.append(SETTINGS, settings)
        elif known[stream.source] != settings:
            raise UsageError(
                f"{self.run.path} holds tasks of {stream.source} made with another seed, bound "
                "or state of the repository: choose another directory, or remove it first"
            )
        for step in self.run.rows(TABLE, Step):
            if step.source != stream.source:
                continue
            candidate = next(stream.candidates, None)
            if candidate is None or candidate.key != step.candidate:
                raise UsageError(
                    f"{self.run.path} was made by another version of tadpole: choose another "
                    "directory, or remove it first"
                )
            stream.index += 1
            if step.task:
                stream.kept.append(taskdir.load(self.run.path / step.task))
                self.bar.advance(1)

    async def share(self, streams: Sequence[_Stream], count: int) -> None:
        """Fill every stream to its share, and again while some have run dry."""
        while True:
            open_streams = [stream for stream in streams if not stream.dry]
            missing = count - sum(len(stream.kept) for stream in streams)
            if missing <= 0 or not open_streams:
                return
            given = sum(len(stream.kept) for stream in streams if stream.dry)
            even, rest = divmod(count - given, len(open_streams))
            await together(
                self._fill(stream, even + (number < rest))
                for number, stream in enumerate(open_streams)
            )

    async def _fill(self, stream: _Stream, quota: int) -> None:
        """Judge candidates, a few at a time, and take the verdicts in order."""
        running: deque[asyncio.Task[_Judged]] = deque()
        try:
            while len(stream.kept) < quota:
                stream.look(WORKERS + 1)
                if stream.dry:
                    return
                for number in range(len(running), len(stream.ahead)):
                    name = f"{stream.name}-{stream.index + number:04d}"
                    judged = self._judge(stream.snapshot, stream.ahead[number], name)
                    running.append(asyncio.create_task(judged))
                self._commit(stream, await running[0])
                running.popleft()
                stream.ahead.popleft()
        finally:  # what was begun beyond the share is judged anew if it is needed after all
            await end(running)

    async def _judge(self, snapshot: Snapshot, candidate: Candidate, name: str) -> _Judged:
        async with self.free:
            start = time.monotonic()
            for attempt in range(RETRIES + 1):
                try:
                    task = await self.validator.validate(snapshot, candidate, name)
                    return _Judged(candidate, task, None, time.monotonic() - start)
                except Dropped as drop:
                    return _Judged(candidate, None, drop.reason, time.monotonic() - start)
                except (SandboxDied, SandboxStartError, GraderError):
                    if attempt == RETRIES:
                        raise
            raise AssertionError("unreachable")

    def _commit(self, stream: _Stream, judged: _Judged) -> None:
        task, reason = judged.task, judged.reason
        if task is not None and any(_same(task, other) for other in stream.kept):
            task, reason = None, DropReason.DUPLICATE
        if task is not None:
            taskdir.save(task, self.run.path)
        candidate = judged.candidate
        step = Step(
            source=stream.source,
            index=stream.index,
            candidate=candidate.key,
            operator=candidate.operator,
            path=candidate.files[0],
            function=candidate.functions[0],
            reason=reason,
            task=task.name if task else "",
            fail_to_pass=len(task.fail_to_pass) if task else 0,
            seconds=round(judged.seconds, 3),
        )
        self.run.append(TABLE, step)
        stream.index += 1
        if task is not None:
            stream.kept.append(task)
            self.bar.advance(1)
        self.bar.update(note=f"{stream.name} {len(stream.kept)} of {stream.index} tried")


def _outside(
    candidates: Iterator[Candidate], location: str, closed: Collection[SourceFile]
) -> Iterator[Candidate]:
    """Those candidates that edit no file of ``closed``."""
    for candidate in candidates:
        if not any((location, path) in closed for path in candidate.files):
            yield candidate


def _same(one: Task, other: Task) -> bool:
    return (
        one.fail_to_pass == other.fail_to_pass
        and one.provenance.edited_files == other.provenance.edited_files
        and one.provenance.edited_functions == other.provenance.edited_functions
    )
