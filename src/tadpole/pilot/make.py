"""Makes a set of validated tasks from repositories: deterministic, in parallel, resumable.

Each source has a stream of candidates, and the least tried source gives the next one. A few
candidates are validated ahead, but verdicts are taken in that order, so that neither timing nor
a crash changes the outcome. Sources share the count evenly; what one cannot give, the others do.
What is nearly the same as a task that is there already (:mod:`tadpole.pilot.likeness`), in this
set or in earlier ones, and what a cap refuses (:mod:`tadpole.pilot.diversity`), is not validated.
"""

import asyncio
import hashlib
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tadpole.errors import UsageError
from tadpole.pilot import taskdir
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.diversity import NO_CAPS, Caps, Quota, traits_of, traits_of_candidate
from tadpole.pilot.journal import COSTS, SETTINGS, TABLE, Cost, Making, Step
from tadpole.pilot.judge import Judged, judge
from tadpole.pilot.likeness import Likeness, lines_of, lines_of_candidate
from tadpole.pilot.origin import Origin
from tadpole.pilot.proposers.singlesite import SingleSite, Style
from tadpole.pilot.screening import BATCH
from tadpole.pilot.split import SourceFile
from tadpole.pilot.stream import Ahead, Stream, next_up, wanting
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import DropReason
from tadpole.progress import Bar, Progress
from tadpole.protocols import Grader, Proposer, SandboxEngine
from tadpole.repos.address import shown
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.timing import cpu_seconds
from tadpole.together import end

WORKERS = 2


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
    earlier: Sequence[Path] = (),
    caps: Caps = NO_CAPS,
    closed: Collection[SourceFile] = (),
    origins: dict[str, Origin] | None = None,
) -> list[Task]:
    """Make ``count`` tasks into ``out``, or fewer where the sources give no more.

    ``max_dictated_chars`` asks for edits inside one line whose old and new text are that short
    (0: any edit); ``rules`` say what makes a task; ``earlier`` are directories of tasks that none
    may be like; ``caps`` say how many of ``count`` may be alike; no file of ``closed`` is edited;
    ``origins`` is filled with what each task was made of, by its name. Calling it again with the
    same ``out`` goes on where it stopped.

    Raises UsageError where ``out`` belongs to other settings, SourceError for a source that
    cannot become a snapshot, TaskError for an earlier directory without tasks, and SandboxError
    or GraderError where validation keeps breaking.
    """
    style = Style.LINE if max_dictated_chars else Style.ANY
    chosen = proposer or SingleSite(style=style, max_dictated=max_dictated_chars)
    before = [task for directory in earlier for task in taskdir.load_set(directory)]
    out.mkdir(parents=True, exist_ok=True)
    run = RunDir(out)
    with run.lock(), progress.task("make tasks", total=count) as bar:
        checks = validator or Validator(store, engine, grader, rules)
        making = _Making(run, checks, bar, Quota(count, caps), {} if origins is None else origins)
        for task in before:
            making.known.add(lines_of(task))
        streams: list[Stream] = []
        for asked in dict.fromkeys(sources):
            source = shown(asked)
            bar.update(note=f"reading {source}")
            snapshot = await store.snapshot(asked)
            name = making.name_of(source, snapshot.name, streams)
            proposed = chosen.propose(snapshot, random.Random(f"{seed} {source}"))
            candidates = _outside(proposed, snapshot.source.location, closed)
            streams.append(Stream(source, snapshot, name, candidates))
            settings = Making(
                source=source,
                snapshot=snapshot.key,
                seed=seed,
                proposer=chosen.name,
                max_dictated=max_dictated_chars,
                mutants=checks.rules.mutants,
                min_kill_rate=checks.rules.min_kill_rate,
                caps=_told(caps),
                earlier=_digest(before),
                name=name,
            )
            making.settle(settings)
        taskdir.sweep(out)
        making.resume(streams)
        await making.fill(streams, count)
    return [task for stream in streams for task in stream.kept]


class _Making:
    def __init__(
        self,
        run: RunDir,
        validator: Validator,
        bar: Bar,
        quota: Quota,
        origins: dict[str, Origin],
    ) -> None:
        self.origins = origins
        self.run = run
        self.validator = validator
        self.bar = bar
        self.quota = quota
        self.known = Likeness()
        self.free = asyncio.Semaphore(WORKERS)
        self.spent = cpu_seconds()
        self.begun = {row.source: row for row in run.rows(SETTINGS, Making)}

    def name_of(self, source: str, name: str, before: Sequence[Stream]) -> str:
        """With what the names of a source's tasks begin: as ever, or as those of no other."""
        if source in self.begun and self.begun[source].name:
            return self.begun[source].name
        taken = {stream.name for stream in before} | {row.name for row in self.begun.values()}
        number, found = len(before), name
        while found in taken:
            number, found = number + 1, f"{name}-{number + 1}"
        return found

    def settle(self, settings: Making) -> None:
        """Write down what a source's journal depends on, or check that it is still that."""
        known = self.begun.get(settings.source)
        if known is None:
            self.run.append(SETTINGS, settings)
            self.begun[settings.source] = settings
        elif known != settings.model_copy(update={"name": known.name}):
            raise UsageError(
                f"{self.run.path} holds tasks of {settings.source} made with another seed, bound, "
                "cap or state of the repository: choose another directory, or remove it first"
            )

    def resume(self, streams: Sequence[Stream]) -> None:
        """Take over what the journal already says."""
        by_source = {stream.source: stream for stream in streams}
        for step in self.run.rows(TABLE, Step):
            task = taskdir.load(self.run.path / step.task) if step.task else None
            stream = by_source.get(step.source)
            if stream is not None:
                ahead = stream.pop()
                if ahead is None or ahead.candidate.key != step.candidate:
                    raise UsageError(
                        f"{self.run.path} was made by another version of tadpole: choose another "
                        "directory, or remove it first"
                    )
                if task is not None:
                    self._take(task, stream, ahead.candidate)
            elif task is not None:
                self._count(task)

    async def fill(self, streams: Sequence[Stream], count: int) -> None:
        """Write down one candidate after the other until the count is reached."""
        try:
            while open_streams := wanting(streams, count):
                upcoming = next_up(open_streams, WORKERS + 1)
                missing = count - sum(len(stream.kept) for stream in streams)
                for stream in open_streams:
                    self._expect(stream, WORKERS + 1 + min(BATCH, 2 * missing // len(open_streams)))
                for stream, at in upcoming:
                    self._begin(stream, at)
                stream = upcoming[0][0]
                judging = stream.ahead[0].judging
                judged = None if judging is None else await judging
                self._commit(stream, judged)
        finally:  # what was begun beyond the count is judged anew if it is needed after all
            begun = [one.judging for stream in streams for one in stream.ahead]
            await end([judging for judging in begun if judging is not None])

    def _expect(self, stream: Stream, number: int) -> None:
        """Say what comes next: what is screened together costs less."""
        stream.look(number)
        wanted = [one.candidate for one in stream.ahead if self._refused(stream, one) is None]
        self.validator.expect(stream.snapshot, wanted)

    def _begin(self, stream: Stream, at: int) -> None:
        ahead = stream.ahead[at]
        if ahead.judging is None and self._refused(stream, ahead) is None:
            name = f"{stream.name}-{stream.index + at:04d}"
            judged = self._judge(stream.snapshot, ahead.candidate, name)
            ahead.judging = asyncio.create_task(judged)

    def _refused(self, stream: Stream, ahead: Ahead) -> DropReason | None:
        """Why a candidate is not wanted, whatever its tests say. Once refused, always refused."""
        if ahead.lines is None:
            tree = stream.snapshot.tree
            ahead.lines = lines_of_candidate(ahead.candidate, stream.repository, tree)
        if self.known.has_like(ahead.lines):
            return DropReason.ALIKE
        if self.quota.refuses(traits_of_candidate(ahead.candidate, stream.repository)):
            return DropReason.CAPPED
        return None

    async def _judge(self, snapshot: Snapshot, candidate: Candidate, name: str) -> Judged:
        async with self.free:
            return await judge(self.validator, snapshot, candidate, name)

    def _commit(self, stream: Stream, judged: Judged | None) -> None:
        """Write the next candidate of a stream down; ``judged`` None where it was refused."""
        candidate = stream.ahead[0].candidate
        reason = self._refused(stream, stream.ahead[0])
        task: Task | None = None
        if reason is None and judged is not None:
            task, reason = judged.task, judged.reason
        if task is not None and any(_same(task, other) for other in stream.kept):
            task, reason = None, DropReason.DUPLICATE
        if task is not None and self.known.has_like(lines_of(task)):
            task, reason = None, DropReason.ALIKE  # of what was written, told only by the task
        if task is not None:
            taskdir.save(task, self.run.path)
        spent, self.spent = cpu_seconds() - self.spent, cpu_seconds()
        cost = Cost(
            source=stream.source,
            index=stream.index,
            seconds=round(judged.seconds if judged else 0.0, 3),
            cpu_seconds=round(spent, 3),
            detail=judged.detail if judged else "",
        )
        self.run.append(COSTS, cost)
        step = Step.of(stream.source, stream.index, candidate, task, reason)
        self.run.append(TABLE, step)
        stream.pop()
        if task is not None:
            self._take(task, stream, candidate)
        self.bar.update(note=f"{stream.name} {len(stream.kept)} of {stream.index} tried")

    def _take(self, task: Task, stream: Stream, candidate: Candidate) -> None:
        self._count(task)
        self.origins[task.name] = Origin(stream.snapshot, candidate)
        stream.kept.append(task)
        self.bar.advance(1)

    def _count(self, task: Task) -> None:
        self.known.add(lines_of(task))
        self.quota.take(traits_of(task))


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


def _told(caps: Caps) -> str:
    """The caps that say something, as text."""
    none = asdict(NO_CAPS)
    return ", ".join(f"{k} {v:g}" for k, v in asdict(caps).items() if v != none[k])


def _digest(tasks: Sequence[Task]) -> str:
    """Names a set of tasks; empty for none."""
    ids = " ".join(sorted(task.id for task in tasks))
    return hashlib.sha256(ids.encode()).hexdigest()[:16] if tasks else ""
