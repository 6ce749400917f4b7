"""The test runs of one candidate in one box: what fails, what stays green, what is hidden."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tadpole.outcome import TestStatus
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.hide import by_file, locate, source_of, without_tests
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import ExecReason, Sandbox
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.testrun import Failure, TestReport, run_tests
from tadpole.task import FileChange

_RED = (TestStatus.FAILED, TestStatus.ERROR)


@dataclass(frozen=True)
class Rules:
    """What makes a task. Counts of tests, times in seconds."""

    most_failing: int = 60
    most_failing_share: float = 0.3  # of the stable tests
    most_green: int = 40  # pass-to-pass tests that a task keeps
    reached: int = 400  # most tests that are run because they reach the edit
    sampled: int = 30  # and of others, seeded
    few: int = 8  # fewer near tests than this are joined by some of anywhere
    slow: float = 0.1  # a test above this is kept green only where quick ones are few
    slack: float = 10.0  # a test may take this many times its own duration
    shortest_limit: float = 2.0
    hash_seeds: tuple[int, int] = (1, 2)
    mutants: int = 0  # wrong repairs that the tests are tried on, besides none; 0: not measured
    min_kill_rate: float = 0.7  # least share of them that the tests must notice


@dataclass(frozen=True)
class Found:
    """What the runs said."""

    failing: tuple[str, ...]
    green: tuple[str, ...]
    failures: Mapping[str, Failure]


class Trial:
    """The test runs of one candidate in one box."""

    def __init__(
        self,
        rules: Rules,
        snapshot: Snapshot,
        candidate: Candidate,
        sandbox: Sandbox,
        python: str,
    ) -> None:
        self.rules = rules
        self.snapshot = snapshot
        self.baseline = snapshot.baseline
        self.candidate = candidate
        self.sandbox = sandbox
        self.python = python
        self.rng = random.Random(f"{candidate.key} {candidate.seed}")
        share = int(self.rules.most_failing_share * len(self.baseline.stable))
        self.cap = max(1, min(self.rules.most_failing, share))

    async def confirm(self) -> Found:
        """Steps 1 and 2."""
        reached = self._reached()
        wanted = [*reached[: self.rules.reached], *self._others(reached)]
        first = await self.run(wanted, maxfail=self.cap + 1)
        failing = self._failing(first, wanted)
        if not set(failing) <= set(reached):
            raise Dropped(DropReason.UNREACHED)
        green = self._green([i for i in wanted if i in first.passed], set(reached), failing)
        if not green:
            raise Dropped(DropReason.NOTHING_STAYS)
        failures: Mapping[str, Failure] = {}
        for hash_seed in self.rules.hash_seeds:
            last = hash_seed == self.rules.hash_seeds[-1]
            again = await self.run(
                [*failing, *green], hash_seed=hash_seed, reverse=last, details=not last
            )
            if any(again.statuses.get(i) not in _RED for i in failing):
                raise Dropped(DropReason.UNSTABLE)
            if not set(green) <= again.passed:
                raise Dropped(DropReason.UNSTABLE)
            failures = failures or {i: again.failures[i] for i in failing if i in again.failures}
        if not failures:
            raise Dropped(DropReason.UNSTABLE)
        return Found(failing, green, failures)

    async def hide(self, found: Found) -> tuple[FileChange, ...]:
        """Step 3: the reduced test files.

        What stays is run only where it still mentions a hidden test by name: a function that
        nothing refers to can be taken out without harm.
        """
        visible = []
        mentioned = False
        for path, chains in sorted(by_file(found.failing).items()):
            whole = pristine_file(self.snapshot, path)
            content = without_tests(path, whole.content or b"", chains)
            if content is None:
                raise Dropped(DropReason.UNHIDEABLE)
            visible.append(FileChange(path, content, whole.executable))
            names = {chain[-1] for chain in chains}
            mentioned |= not names.isdisjoint(
                re.findall(r"\w+", content.decode("utf-8", "replace"))
            )
        if mentioned:
            await self._run_visible(found, visible)
        return tuple(visible)

    async def _run_visible(self, found: Found, visible: Sequence[FileChange]) -> None:
        contents = {change.path: change.content or b"" for change in visible}
        staying = []
        for node_id in found.green:
            path, chain = locate(node_id)
            if path not in contents or source_of(path, contents[path], chain):
                staying.append(node_id)
        await self.sandbox.write(visible)
        report = await self.run(staying)
        if not report.collected or not set(staying) <= report.passed:
            raise Dropped(DropReason.VISIBLE_BROKEN)

    def _green(
        self, passed: Sequence[str], reached: set[str], failing: Sequence[str]
    ) -> tuple[str, ...]:
        """The tests to keep green: quick ones, those that reach the edit, those near the failing.

        Every grading of every attempt runs them, so slow ones are taken last.
        """
        places = {locate(i)[0] for i in failing}

        def rank(node_id: str) -> tuple[bool, bool, bool]:
            slow = self.baseline.seconds[node_id] > self.rules.slow
            return slow, node_id not in reached, locate(node_id)[0] not in places

        return tuple(sorted(passed, key=rank)[: self.rules.most_green])

    def _reached(self) -> tuple[str, ...]:
        ids: set[str] = set()
        for site in self.candidate.sites:
            ids.update(self.baseline.tests_of(site.path, site.lines))
        return tuple(i for i in self.baseline.stable if i in ids)

    def _others(self, reached: Sequence[str]) -> list[str]:
        """Tests that do not reach the edit, nearest first: those that reach the edited files,
        those in the same test files; others only where these are few, as each file costs time.
        """
        wanted: dict[str, None] = {}
        near = [i for path in self.candidate.files for i in self.baseline.tests_of(path)]
        places = {locate(i)[0] for i in reached}
        for group in (
            near,
            [i for i in self.baseline.stable if locate(i)[0] in places],
            list(self.baseline.stable) if len(near) < self.rules.few else [],
        ):
            fresh = [i for i in group if i not in set(reached) and i not in wanted]
            self.rng.shuffle(fresh)
            if group is not near:  # from few files rather than from many
                order = list(dict.fromkeys(locate(i)[0] for i in fresh))
                fresh.sort(key=lambda node_id: order.index(locate(node_id)[0]))
            full = self.rules.few if group is not near else self.rules.sampled
            wanted.update(dict.fromkeys(fresh[:full]))
        return list(wanted)[: self.rules.sampled]

    def _failing(self, report: TestReport, wanted: Sequence[str]) -> tuple[str, ...]:
        """Which of the wanted tests fail. Raises Dropped where the run is no basis."""
        failing = tuple(i for i in wanted if report.statuses.get(i) in _RED)
        if not report.collected or report.collection_errors:
            raise Dropped(DropReason.BREAKS_COLLECTION)
        if report.reason is ExecReason.TIMEOUT:
            raise Dropped(DropReason.TOO_SLOW)
        if any(report.seconds.get(i, 0.0) >= self._limit(i) for i in failing):
            raise Dropped(DropReason.HANGS)
        if len(failing) > self.cap:
            raise Dropped(DropReason.TOO_MANY)
        if any(report.statuses.get(i, TestStatus.MISSING) is TestStatus.MISSING for i in wanted):
            raise Dropped(DropReason.VANISHED)
        if not failing:
            raise Dropped(DropReason.SURVIVED)
        return failing

    def _limit(self, node_id: str) -> float:
        return max(self.rules.shortest_limit, self.rules.slack * self.baseline.seconds[node_id])

    async def run(
        self,
        ids: Sequence[str],
        *,
        maxfail: int = 0,
        hash_seed: int = 0,
        reverse: bool = False,
        details: bool = False,
    ) -> TestReport:
        """Run these tests on what the box holds now, each with its own limit."""
        return await run_tests(
            self.sandbox,
            self.snapshot.recipe,
            self.python,
            ids,
            timeout=20 + 3 * sum(self.baseline.seconds[i] for i in ids),
            test_seconds={i: self._limit(i) for i in ids},
            maxfail=maxfail,
            hash_seed=hash_seed,
            reverse=reverse,
            details=details,
        )


def pristine_file(snapshot: Snapshot, path: str) -> FileChange:
    """A file of the snapshot as it is there."""
    file = snapshot.tree / path
    return FileChange(path, file.read_bytes(), bool(file.stat().st_mode & 0o100))
