"""The rules of a task, and the test runs of one candidate in one box: what is hidden."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.hide import by_file, locate, source_of, without_tests
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import ExecReason, Sandbox, SandboxEngine
from tadpole.repos.snapshot import Baseline, Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import Failure, TestReport, run_tests, with_reporter
from tadpole.task import FileChange


@dataclass(frozen=True)
class Rules:
    """What makes a task. Counts of tests, times in seconds."""

    most_failing: int = 60
    most_failing_share: float = 0.3  # of the stable tests
    most_green: int = 40  # pass-to-pass tests that a task keeps
    reached: int = 4000  # most tests that are run because they reach the edit
    sampled: int = 30  # and of others, seeded
    of_each: int = 10  # most of those from one test file
    few: int = 8  # fewer near tests than this are joined by some of anywhere
    slow: float = 5.0  # a test above this is kept green only where quick ones are few
    slack: float = 10.0  # a test may take this many times its own duration
    shortest_limit: float = 2.0
    hash_seeds: tuple[int, int] = (1, 2)
    together: int = 4  # most candidates in one run of the whole suite
    mutants: int = 0  # wrong repairs that the tests are tried on, besides none; 0: not measured
    min_kill_rate: float = 0.7  # least share of them that the tests must notice

    def limit(self, seconds: float) -> float:
        """The longest that a test may take which takes ``seconds`` before any change."""
        return max(self.shortest_limit, self.slack * seconds)

    def wall(self, baseline: Baseline, seconds: float) -> float:
        """The longest that a run may take by the clock, whose tests take ``seconds`` by themselves:
        far more than that and the start of the suite, for other work may have the machine.
        """
        start = max(0.0, baseline.suite_seconds - sum(baseline.seconds.values()))
        return 30.0 + 6 * (start + seconds)

    def deadline(self, tests: int, seconds: float) -> float:
        """The longest that a grading of so many tests may take, in seconds.

        It follows the number of tests, which does not change when durations are measured anew.
        What they took (``seconds``) counts only where tests are slow: then it is four times as
        long, or sixteen times, and so on, until it is three times what they took.
        """
        longest = 10.0 * math.ceil(2 + tests / 20)
        while longest < 3 * seconds:
            longest *= 4
        return longest


@dataclass(frozen=True)
class Found:
    """What the runs said."""

    failing: tuple[str, ...]
    green: tuple[str, ...]
    failures: Mapping[str, Failure]
    mutants: int = 0  # wrong repairs that were tried; 0: none was
    killed: int = 0  # of these, how many the tests noticed


class Trial:
    """The test runs of one candidate in one box, which starts with the first of them."""

    def __init__(
        self,
        rules: Rules,
        snapshot: Snapshot,
        candidate: Candidate,
        store: Store,
        engine: SandboxEngine,
    ) -> None:
        self.rules = rules
        self.snapshot = snapshot
        self.baseline = snapshot.baseline
        self.candidate = candidate
        self._store, self._engine = store, engine
        self._box: Sandbox | None = None

    async def close(self) -> None:
        """End the box, where there is one."""
        if self._box is not None:
            await self._box.close()

    async def write(self, changes: Sequence[FileChange]) -> None:
        """Change the tree of the box, which holds the candidate's changes already."""
        await (await self._started()).write(changes)

    async def _started(self) -> Sandbox:
        if self._box is None:
            spec = with_reporter(self._store.box(self.snapshot))
            self._box = await self._engine.start(spec)
            await self._box.write(self.candidate.changes)
        return self._box

    async def run_visible(self, found: Found, visible: Sequence[FileChange]) -> None:
        """Step 3: what stays of the test files still runs. Raises Dropped."""
        contents = {change.path: change.content or b"" for change in visible}
        staying = []
        for node_id in found.green:
            path, chain = locate(node_id)
            if path not in contents or source_of(path, contents[path], chain):
                staying.append(node_id)
        await self.write(visible)
        report = await self.run(staying)
        if not report.collected or not set(staying) <= report.passed:
            raise Dropped(DropReason.VISIBLE_BROKEN)

    def _limit(self, node_id: str) -> float:
        return self.rules.limit(self.baseline.seconds[node_id])

    async def run(
        self,
        ids: Sequence[str],
        *,
        maxfail: int = 0,
        hash_seed: int = 0,
        reverse: bool = False,
        details: bool = False,
    ) -> TestReport:
        """Run these tests on what the box holds now, each with its own limit. Raises Dropped."""
        box = await self._started()
        return await settled(
            lambda: run_tests(
                box,
                self.snapshot.recipe,
                self._store.python(self.snapshot),
                ids,
                timeout=self.rules.wall(self.baseline, sum(self.baseline.seconds[i] for i in ids)),
                test_seconds={i: self._limit(i) for i in ids},
                maxfail=maxfail,
                hash_seed=hash_seed,
                reverse=reverse,
                details=details,
            )
        )


async def settled(run: Callable[[], Awaitable[TestReport]]) -> TestReport:
    """What a run shows, and where a limit of time ended it or a test of it, what another shows.

    Once, it may have been the machine that was slow. Raises Dropped where the clock ends it again.
    """
    report = await run()
    if report.hung or report.reason is ExecReason.TIMEOUT:
        report = await run()
    if report.reason is ExecReason.TIMEOUT:
        raise Dropped(DropReason.TOO_SLOW)
    return report


def reduced(snapshot: Snapshot, found: Found) -> tuple[tuple[FileChange, ...], bool]:
    """The test files without the hidden tests, and whether what stays has to be run.

    It has to where it still mentions a hidden test by name: a function that nothing refers to can
    be taken out without harm. Raises Dropped.
    """
    visible = []
    mentioned = False
    for path, chains in sorted(by_file(found.failing).items()):
        whole = pristine_file(snapshot, path)
        content = without_tests(path, whole.content or b"", chains)
        if content is None:
            raise Dropped(DropReason.UNHIDEABLE)
        visible.append(FileChange(path, content, whole.executable))
        names = {chain[-1] for chain in chains}
        mentioned |= not names.isdisjoint(re.findall(r"\w+", content.decode("utf-8", "replace")))
    return tuple(visible), mentioned


def pristine_file(snapshot: Snapshot, path: str) -> FileChange:
    """A file of the snapshot as it is there."""
    file = snapshot.tree / path
    return FileChange(path, file.read_bytes(), bool(file.stat().st_mode & 0o100))
