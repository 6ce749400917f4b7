"""Confirms candidates by running tests, many of one snapshot at a time.

1. screen: the tests that reach the edit and a sample of others; it stops where too many fail
2. repeat: the failing ones and those that stay green under each further hash seed, in the last
   of them in reverse order; there also, in turn, the mutants that :mod:`strength` counts
3. the whole suite once, in a process that imports and collects everything itself, with a few
   candidates in the tree that have no failing test in common (:mod:`tadpole.pilot.joint`)

Steps 1 and 2 run in forked processes of a suite that was loaded once a batch
(:mod:`tadpole.repos.variants`), so the more candidates are known to come (``expect``) the less
each of them costs. What comes out does not depend on how they are put together.

Guards against: flaky tests, tests that fail for another reason than the edit, tests that vanish
or hang, and what a swap of code objects would not show. Does not guard against a test whose
outcome hangs on files outside of the tree that another candidate's tests wrote: the whole run
sees most of it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.choice import Choice
from tadpole.pilot.joint import Group, groups
from tadpole.pilot.strength import mutants_of
from tadpole.pilot.trial import Found, Rules
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import Sandbox, SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import TestReport, with_reporter
from tadpole.repos.variants import Variant, run_variants
from tadpole.together import together

BATCH = 32  # candidates that share a loaded suite
_WHOLE_TEST_SECONDS = 60.0  # limit of one test in the whole run

Verdict = Found | DropReason


@dataclass
class _Batch:
    work: "asyncio.Task[dict[str, Verdict]]"
    waiting: int = 0


@dataclass
class _Line:
    """The candidates of one snapshot."""

    expected: deque[Candidate] = field(default_factory=deque)
    batches: dict[str, _Batch] = field(default_factory=dict)  # by candidate


class Screening:
    """Finds what each candidate breaks, and that it is stable."""

    def __init__(self, store: Store, engine: SandboxEngine, rules: Rules) -> None:
        self.store, self.engine, self.rules = store, engine, rules
        self._lines: dict[str, _Line] = {}

    def expect(self, snapshot: Snapshot, candidates: Sequence[Candidate]) -> None:
        """Say which candidates will be asked for next: they may be run together."""
        line = self._lines.setdefault(snapshot.key, _Line())
        line.expected = deque(c for c in candidates if c.key not in line.batches)

    async def found(self, snapshot: Snapshot, candidate: Candidate) -> Found:
        """What its tests say.

        Raises Dropped with the reason, SandboxError where it could not be told.
        """
        line = self._lines.setdefault(snapshot.key, _Line())
        batch = line.batches.get(candidate.key) or self._begin(line, snapshot, candidate)
        batch.waiting += 1
        try:
            verdicts = await asyncio.shield(batch.work)
        finally:
            batch.waiting -= 1
            if not batch.work.done() and not batch.waiting:  # nobody wants it any more
                batch.work.cancel()
                await asyncio.wait([batch.work])
            if batch.work.cancelled() or (batch.work.done() and batch.work.exception()):
                line.batches = {k: b for k, b in line.batches.items() if b is not batch}
        verdict = verdicts[candidate.key]
        if isinstance(verdict, DropReason):
            raise Dropped(verdict)
        return verdict

    def _begin(self, line: _Line, snapshot: Snapshot, candidate: Candidate) -> _Batch:
        chosen = {candidate.key: candidate}
        while line.expected and len(chosen) < BATCH:
            one = line.expected.popleft()
            if one.key not in line.batches:
                chosen[one.key] = one
        run = _Run(self, snapshot, [Choice(self.rules, snapshot, c) for c in chosen.values()])
        batch = _Batch(asyncio.create_task(run.verdicts()))
        line.batches |= dict.fromkeys(chosen, batch)
        return batch


class _Run:
    """One batch."""

    def __init__(self, screening: Screening, snapshot: Snapshot, choices: list[Choice]) -> None:
        self.snapshot, self.choices = snapshot, choices
        self.rules, self.store, self.engine = screening.rules, screening.store, screening.engine
        files = {path for choice in choices for path in choice.candidate.files}
        known = {path: snapshot.baseline.imported(path) for path in files}
        self.imported = {path: lines for path, lines in known.items() if lines is not None}
        self.verdict: dict[str, Verdict] = {}
        self.killed: dict[str, tuple[int, int]] = {}

    @property
    def _left(self) -> list[Choice]:
        return [one for one in self.choices if one.candidate.key not in self.verdict]

    async def verdicts(self) -> dict[str, Verdict]:
        """By candidate."""
        async with _Boxes(self) as boxes:
            first = [
                Variant(
                    one.candidate.changes,
                    one.wanted,
                    one.seconds(one.wanted),
                    one.limits(one.wanted),
                    maxfail=one.cap + 1,
                )
                for one in self._left
            ]
            self._judge(self._left, await boxes.run(0, first, 0), Choice.after_first)
            left = self._left
            mutants = {one.candidate.key: self._mutants(one) for one in left}
            repeats: list[list[TestReport]] = [[] for _ in self.rules.hash_seeds]
            at_once = len(repeats)

            async def repeat(number: int, seed: int) -> None:
                last = number == len(repeats) - 1
                variants = [_repeat(one, reverse=last, details=not number) for one in left]
                # Dealt out: while one that hangs is waited for, the others go on.
                variants += [v for one in left for v in mutants[one.candidate.key][number::at_once]]
                repeats[number] = await boxes.run(number, variants, seed)

            await together(repeat(*one) for one in enumerate(self.rules.hash_seeds))
            for reports in repeats:
                self._judge(left, reports[: len(left)], Choice.after_repeat)
            rests = [iter(reports[len(left) :]) for reports in repeats]
            for one in left:
                tried = mutants[one.candidate.key]
                seen = (next(rests[at % len(rests)]) for at in range(len(tried)))
                noticed = [
                    not set(v.ids or ()) <= report.passed
                    for v, report in zip(tried, seen, strict=True)
                ]
                self.killed[one.candidate.key] = len(tried), sum(noticed)
                if tried and 1 + sum(noticed) < self.rules.min_kill_rate * (1 + len(tried)):
                    self.verdict.setdefault(one.candidate.key, DropReason.WEAK)
            pending = groups(self.snapshot, self._left, self.rules.together)
            while pending:
                wholes = await boxes.run(0, [self._whole(group) for group in pending], 0)
                ran, pending = list(zip(pending, wholes, strict=True)), []
                for group, report in ran:
                    if len(group.choices) == 1:
                        self._judge(group.choices, [report], Choice.after_whole)
                    elif not group.agrees(report):
                        pending += group.halves(self.snapshot)
            for one in self._left:
                key = one.candidate.key
                try:
                    self.verdict[key] = one.found(*self.killed.get(key, (0, 0)))
                except Dropped as drop:
                    self.verdict[key] = drop.reason
        return self.verdict

    def _judge(self, choices: Sequence[Choice], reports: Sequence[TestReport], after: Any) -> None:
        for one, report in zip(choices, reports, strict=True):
            try:
                after(one, report)
            except Dropped as drop:
                self.verdict.setdefault(one.candidate.key, drop.reason)

    def _whole(self, group: Group) -> Variant:
        seconds = 20 + 5 * sum(self.snapshot.baseline.seconds.values())
        limits = {i: limit for one in group.choices for i, limit in one.limits(one.failing).items()}
        return Variant(group.changes, None, seconds, limits, limit=_WHOLE_TEST_SECONDS)

    def _mutants(self, one: Choice) -> list[Variant]:
        """Wrong repairs of a bug in one place, and the tests that should notice them."""
        candidate = one.candidate
        if not self.rules.mutants or len(candidate.sites) != 1 or len(candidate.changes) != 1:
            return []
        [site], [change] = candidate.sites, candidate.changes
        if change.path != site.path:
            return []
        content = change.content or b""
        found = mutants_of(self.snapshot, site, content, self.rules.mutants)
        reaching = set(self.snapshot.baseline.tests_of(site.path, site.lines))
        ids = tuple(i for i in one.deciding if i in reaching)
        return [
            Variant((mutant.change,), ids, one.seconds(ids), one.limits(ids), maxfail=1)
            for mutant in found
        ]


def _repeat(one: Choice, *, reverse: bool, details: bool) -> Variant:
    ids = one.deciding
    limits, changes = one.limits(ids), one.candidate.changes
    return Variant(changes, ids, one.seconds(ids), limits, reverse=reverse, details=details)


class _Boxes:
    """The boxes of a batch, started when they are needed, one for each hash seed at a time."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._open: dict[int, Sandbox] = {}

    async def __aenter__(self) -> "_Boxes":
        return self

    async def __aexit__(self, *_: object) -> None:
        for box in self._open.values():
            await box.close()

    async def run(self, number: int, variants: list[Variant], hash_seed: int) -> list[TestReport]:
        """Run variants in a box of that number."""
        if not variants:
            return []
        run = self._run
        if number not in self._open:
            spec = with_reporter(run.store.box(run.snapshot))
            self._open[number] = await run.engine.start(spec)
        return await run_variants(
            self._open[number],
            run.snapshot.recipe,
            run.store.python(run.snapshot),
            variants,
            imported=run.imported,
            hash_seed=hash_seed,
        )
