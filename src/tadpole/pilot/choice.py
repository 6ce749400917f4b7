"""What one candidate's test runs have to show, and which tests become its own.

Only decisions: the runs themselves are made by :mod:`tadpole.pilot.screening`. No choice hangs on
how long a test took, or on which other tests there are: where some of many are taken, each is
drawn by its own hash, so that a snapshot that was measured anew gives the same tasks.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from tadpole.outcome import TestStatus
from tadpole.pilot import symptom
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.hide import locate
from tadpole.pilot.trial import Found, Rules
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.protocols import ExecReason
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.testrun import Failure, TestReport

RED = (TestStatus.FAILED, TestStatus.ERROR)


class Choice:
    """The tests of one candidate. Each ``after_`` raises Dropped with the reason."""

    def __init__(self, rules: Rules, snapshot: Snapshot, candidate: Candidate) -> None:
        self.rules, self.baseline, self.candidate = rules, snapshot.baseline, candidate
        share = int(rules.most_failing_share * len(self.baseline.stable))
        self.cap = max(1, min(rules.most_failing, share))
        places = ((site.path, site.lines) for site in candidate.sites)
        reaching = (frozenset(self.baseline.tests_of(*place)) for place in places)
        self._reaching = list(dict.fromkeys(filter(None, reaching)))
        self.reached = self._reached()
        self.wanted = (*self.reached[: rules.reached], *self._others())
        self.failing: tuple[str, ...] = ()
        self.green: tuple[str, ...] = ()
        self.failures: Mapping[str, Failure] = {}

    @property
    def deciding(self) -> tuple[str, ...]:
        """Those that fail, and those that stay green."""
        return (*self.failing, *self.green)

    def limits(self, ids: Sequence[str]) -> dict[str, float]:
        """How long each of these tests may take, in seconds."""
        return {i: self.rules.limit(self.baseline.seconds[i]) for i in ids}

    def seconds(self, ids: Sequence[str]) -> float:
        """Processor time that a run of these may take."""
        return 20 + 5 * sum(self.baseline.seconds[i] for i in ids)

    def after_first(self, report: TestReport) -> None:
        """The run of all ``wanted`` tests."""
        wanted = self.wanted
        self.failing = tuple(i for i in wanted if report.statuses.get(i) in RED)
        if not report.collected or report.collection_errors:
            raise Dropped(DropReason.BREAKS_COLLECTION)
        if report.hung:
            raise Dropped(DropReason.HANGS)
        if report.reason in (ExecReason.TIMEOUT, ExecReason.CPU):
            raise Dropped(DropReason.TOO_SLOW)
        if len(self.failing) > self.cap:
            raise Dropped(DropReason.TOO_MANY)
        if any(report.statuses.get(i, TestStatus.MISSING) is TestStatus.MISSING for i in wanted):
            raise Dropped(DropReason.VANISHED)
        if not self.failing:
            raise Dropped(DropReason.SURVIVED)
        if not set(self.failing) <= set(self.reached):
            raise Dropped(DropReason.UNREACHED)
        self.green = self._green([i for i in wanted if i in report.passed])
        if not self.green:
            raise Dropped(DropReason.NOTHING_STAYS)

    def after_repeat(self, report: TestReport) -> None:
        """A run of the ``deciding`` tests under another hash seed, that with details first."""
        if any(report.statuses.get(i) not in RED for i in self.failing):
            raise Dropped(DropReason.UNSTABLE)
        if not set(self.green) <= report.passed:
            raise Dropped(DropReason.UNSTABLE)
        told = {i: report.failures[i] for i in self.failing if i in report.failures}
        self.failures = self.failures or told
        pairs = ((i, one, told.get(i, one)) for i, one in self.failures.items())
        self.failures = {i: symptom.steady(one, again) for i, one, again in pairs}

    def agrees(self, report: TestReport) -> bool:
        """Whether a real run of the whole suite changes nothing about it."""
        try:
            return self._staying(report) == self.green
        except Dropped:
            return False

    def after_whole(self, report: TestReport) -> None:
        """The real run of the whole suite.

        Tests that do not reach the edit cannot decide, whatever became of them there.
        """
        self.green = self._staying(report)

    def _staying(self, report: TestReport) -> tuple[str, ...]:
        """What a whole run leaves of the tests to keep green. Raises Dropped."""
        if not report.collected:
            raise Dropped(DropReason.BREAKS_COLLECTION)
        if report.reason in (ExecReason.TIMEOUT, ExecReason.CPU):
            raise Dropped(DropReason.TOO_SLOW)
        stable = self.baseline.stable
        if any(report.statuses.get(i, TestStatus.MISSING) is TestStatus.MISSING for i in stable):
            raise Dropped(DropReason.VANISHED)
        red = {i for i in self.reached if report.statuses[i] in RED}
        if red != set(self.failing):
            raise Dropped(DropReason.SUITE_DIFFERS)
        green = tuple(i for i in self.green if i in report.passed)
        if not green:
            raise Dropped(DropReason.NOTHING_STAYS)
        return green

    def found(self, mutants: int = 0, killed: int = 0) -> Found:
        """What came out."""
        if not self.failures:
            raise Dropped(DropReason.UNSTABLE)
        return Found(self.failing, self.green, self.failures, mutants=mutants, killed=killed)

    def _green(self, passed: Sequence[str]) -> tuple[str, ...]:
        """The tests to keep green: those that reach the edit, those near the failing, few files.

        Every grading of every attempt runs them, so very slow ones are taken last. Of an edit in
        several places each has its share, so that none is left to itself.
        """
        places = {locate(i)[0] for i in self.failing}
        reached = set(self.reached)

        def is_slow(node_id: str) -> bool:
            return self.baseline.seconds[node_id] > self.rules.slow

        def rank(node_id: str) -> tuple[bool, bool, bool, bytes, bytes]:
            place = locate(node_id)[0]
            drawn = self._draw(place), self._draw(node_id)
            return is_slow(node_id), node_id not in reached, place not in places, *drawn

        ranked = sorted(passed, key=rank)
        share = max(1, self.rules.most_green // max(1, len(self._reaching)))
        chosen: dict[str, None] = {}
        for ids in self._reaching:
            near = [i for i in ranked if i in ids and not is_slow(i)]
            chosen.update(dict.fromkeys(near[:share]))
        chosen.update(dict.fromkeys(ranked))
        return self._in_order(list(chosen)[: self.rules.most_green])

    def _reached(self) -> tuple[str, ...]:
        ids = frozenset[str]().union(*self._reaching)
        return tuple(i for i in self.baseline.stable if i in ids)

    def _others(self) -> list[str]:
        """Tests that do not reach the edit, nearest first: those that reach the edited files,
        those in the same test files; others only where these are few. As each file costs time,
        they are of few files.
        """
        wanted: dict[str, None] = {}
        near = [i for path in self.candidate.files for i in self.baseline.tests_of(path)]
        places = {locate(i)[0] for i in self.reached}
        for group, most in (
            (near, self.rules.sampled),
            ([i for i in self.baseline.stable if locate(i)[0] in places], self.rules.few),
            (self.baseline.stable if len(near) < self.rules.few else (), self.rules.few),
        ):
            away = {*self.reached, *wanted}
            wanted.update(dict.fromkeys(self._drawn([i for i in group if i not in away], most)))
        return list(wanted)[: self.rules.sampled]

    def _drawn(self, ids: Iterable[str], most: int) -> list[str]:
        """Some of these tests, a few of each file until there are enough."""
        files: dict[str, list[str]] = {}
        for node_id in ids:
            files.setdefault(locate(node_id)[0], []).append(node_id)
        found: list[str] = []
        for place in sorted(files, key=self._draw):
            if len(found) < most:
                found += sorted(files[place], key=self._draw)[: self.rules.of_each]
        return found[:most]

    def _in_order(self, ids: Iterable[str]) -> tuple[str, ...]:
        """As the suite has them."""
        chosen = set(ids)
        return tuple(i for i in self.baseline.stable if i in chosen)

    def _draw(self, name: str) -> bytes:
        """The lot of a test or a file."""
        return hashlib.sha256(
            f"{self.candidate.key} {self.candidate.seed} {name}".encode()
        ).digest()
