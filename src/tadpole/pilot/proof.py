"""Runs what somebody wrote: from a written candidate to a task, by tests and nothing else.

1. the parts are there: a statement, a solution of source files alone, tests in files of their own;
   the statement quotes neither and tells what the tests ask for (:mod:`tadpole.pilot.sufficiency`)
2. solved tree: the tests pass, each executes an edited line or is set aside, and every test of
   the repository that passed still does (one run of the whole suite)
3. start tree: some of the tests fail, others stay green; not being importable yet is failing
4. both again under two more hash seeds, once in reverse order with clocks that run faster
5. what fails and was in the repository before is taken out of its file
6. nobody can read the answer (:mod:`tadpole.pilot.leak`)

The grader and the strength of the tests come after, as for every other candidate.

Guards against: no tests, tests that pass without the solution, flaky and hanging tests, tests of
something else, a solution that edits tests or breaks others, statements that quote it or leave
out what is checked. Does not guard against: a dull task, or tests that check little of what the
statement asks; of that the wrong repairs tell something.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tadpole.grading.filter import split
from tadpole.outcome import TestStatus
from tadpole.pilot import leak, sufficiency, symptom, told
from tadpole.pilot.added import stretches
from tadpole.pilot.hide import by_file, without_tests
from tadpole.pilot.trial import Rules, pristine_file, settled
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.pilot.written import Written, edited_functions, is_test
from tadpole.protocols import Sandbox, SandboxEngine
from tadpole.repos.baseline import PACE
from tadpole.repos.box import WORKDIR
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import Failure, TestReport, run_tests, with_reporter
from tadpole.task import FileChange, Provenance, Task
from tadpole.together import each

SHORTEST, LONGEST = 60, 8000  # characters of a statement
MOST_BYTES = 1 << 20  # of all that was written


@dataclass(frozen=True)
class Proof:
    """A task that holds so far, and what the wrong repairs are tried with."""

    task: Task
    lines: Mapping[str, tuple[int, ...]]  # edited lines of the solved source files
    seconds: Mapping[str, float]  # of every deciding test
    ran: Mapping[str, frozenset[int]]  # lines of the solved source files that written tests run

    def runs(self, path: str, lines: Collection[int]) -> bool:
        """Whether a written test runs one of these lines."""
        return not self.ran.get(path, frozenset()).isdisjoint(lines)


async def prove(
    snapshot: Snapshot,
    written: Written,
    name: str,
    *,
    store: Store,
    engine: SandboxEngine,
    rules: Rules,
) -> Proof:
    """Raises :class:`Dropped` with the reason, SandboxError where it could not be told."""
    check_parts(snapshot, written)
    bare = _bare(snapshot, written, name)
    check_told(snapshot, written, bare)
    run = _Runs(snapshot, written, rules, store.python(snapshot))
    box = with_reporter(store.box(snapshot))
    solved = await engine.start(box)
    try:
        await solved.write([*written.changes, *written.gold, *written.tests])
        begun = await engine.start(box)
        try:
            await begun.write([*written.changes, *written.tests])
            found = await run.compare(solved, begun)
        finally:
            await begun.close()
    finally:
        await solved.close()
    return _proof(snapshot, written, bare, found)


def check_parts(snapshot: Snapshot, written: Written) -> None:
    """Step 1. Raises Dropped."""
    text = written.statement.strip()
    if not SHORTEST <= len(text) <= LONGEST:
        raise Dropped(DropReason.NO_STATEMENT)
    if not any(change.content for change in written.tests):
        raise Dropped(DropReason.NO_TESTS)
    if not written.gold:
        raise Dropped(DropReason.NO_SOLUTION)
    old = [*written.tests, *(c for c in written.changes if is_test(c.path, snapshot.recipe))]
    if any((snapshot.tree / change.path).exists() for change in old):
        raise Dropped(DropReason.TESTS_CHANGED)
    parts = [*written.gold, *written.tests, *written.changes]
    if sum(len(change.content or b"") for change in parts) > MOST_BYTES or not all(
        sufficiency.parses(change.path, change.content) for change in parts
    ):
        raise Dropped(DropReason.UNREADABLE)


@dataclass(frozen=True)
class _Found:
    failing: tuple[str, ...]
    green: tuple[str, ...]
    failures: Mapping[str, Failure]
    lines: Mapping[str, tuple[int, ...]]
    seconds: Mapping[str, float]
    ran: Mapping[str, frozenset[int]]


class _Runs:
    """The runs of the two trees."""

    def __init__(self, snapshot: Snapshot, written: Written, rules: Rules, python: str) -> None:
        self.snapshot, self.written, self.rules, self.python = snapshot, written, rules, python
        self.stable = snapshot.baseline.stable
        self.seconds = dict(snapshot.baseline.seconds)
        self.ran: dict[str, frozenset[int]] = {}
        start = before(snapshot, written)
        self.lines = {
            change.path: tuple(
                n for one in stretches(start.get(change.path), change.content) for n in one.numbers
            )
            for change in written.gold
            if change.content is not None
        }

    async def compare(self, solved: Sandbox, begun: Sandbox) -> _Found:
        """Steps 2 to 4."""
        own, reaching = await self._own(solved)
        ids = [*own, *(self.stable if self.written.changes else ())]
        runs = self._run(solved, self.stable, maxfail=1), self._run(begun, ids, details=True)
        whole, first = await each(runs)
        if not set(self.stable) <= whole.passed:
            raise Dropped(DropReason.BREAKS_TESTS)
        failing = tuple(i for i in ids if i not in first.passed)
        self._enough(first, failing, own)
        if not set(failing) <= {*reaching, *self.stable}:
            raise Dropped(DropReason.UNREACHED)
        green = self._green([i for i in (*own, *self.stable) if i not in set(failing)], reaching)
        if not green:
            raise Dropped(DropReason.NOTHING_STAYS)
        for hash_seed in self.rules.hash_seeds:
            last = hash_seed == self.rules.hash_seeds[-1]
            decide = [*failing, *green]
            how = {"hash_seed": hash_seed, "reverse": last, "pace": PACE if last else 1}
            good, bad = await each(self._run(box, decide, **how) for box in (solved, begun))
            other = (set(decide) - good.passed) | ((set(decide) & bad.passed) ^ set(green))
            if other:
                order = f" in reverse order, with clocks {PACE} times as fast" if last else ""
                raise Dropped(
                    DropReason.UNSTABLE, f"{min(other)} under hash seed {hash_seed}{order}"
                )
        return _Found(failing, green, first.failures, self.lines, self.seconds, self.ran)

    async def _own(self, solved: Sandbox) -> tuple[tuple[str, ...], frozenset[str]]:
        """The written tests, and those of them that execute an edited line."""
        paths = tuple(c.path for c in self.written.tests if c.content and _collected(c.path))
        if not paths:
            raise Dropped(DropReason.NO_TESTS)
        baseline = self.snapshot.baseline
        longest = 90 + self.rules.wall(baseline, baseline.suite_seconds)  # nobody has measured them
        report = await settled(
            lambda: run_tests(
                solved,
                replace(self.snapshot.recipe, test_paths=paths),
                self.python,
                timeout=longest,
                test_seconds=30.0,
                details=True,
                cover=[f"{WORKDIR}/{path}" for path in self.lines],
            )
        )
        own = tuple(i for i, status in report.statuses.items() if status is TestStatus.PASSED)
        bad = [s for s in report.statuses.values() if s in (TestStatus.FAILED, TestStatus.ERROR)]
        if bad or report.collection_errors or not report.finished:
            raise Dropped(DropReason.OWN_TESTS_FAIL)
        if not own:
            raise Dropped(DropReason.NO_TESTS)
        self.seconds |= {i: report.seconds[i] for i in own}
        reaching: set[str] = set()
        if report.coverage is not None:
            for path, lines in self.lines.items():
                covered = report.coverage.lines.get(path, {})
                self.ran[path] = frozenset(covered)
                for line in set(lines) & covered.keys():
                    group = report.coverage.sets[covered[line]]
                    reaching.update(report.coverage.ids[number] for number in group)
        return own, frozenset(reaching)

    def _enough(self, first: TestReport, failing: Sequence[str], own: Sequence[str]) -> None:
        if not failing or not set(failing) & set(own):
            raise Dropped(DropReason.SURVIVED)
        if set(first.collection_errors) - {change.path for change in self.written.tests}:
            raise Dropped(DropReason.BREAKS_COLLECTION)
        if first.hung:
            raise Dropped(DropReason.HANGS)
        share = max(1, int(self.rules.most_failing_share * len(self.stable)))
        if len(failing) > self.rules.most_failing or len(set(failing) - set(own)) > share:
            raise Dropped(DropReason.TOO_MANY)

    def _green(self, passed: Sequence[str], reaching: frozenset[str]) -> tuple[str, ...]:
        """The quickest that have to do with the edited files come first."""
        paths = [change.path for change in self.written.gold]
        near = {i for path in paths for i in self.snapshot.baseline.tests_of(path)} | reaching

        def rank(node_id: str) -> tuple[bool, bool]:
            return self.seconds[node_id] > self.rules.slow, node_id not in near

        return tuple(sorted(passed, key=rank)[: self.rules.most_green])

    def _limit(self, node_id: str) -> float:
        return self.rules.limit(self.seconds[node_id])

    async def _run(self, box: Sandbox, ids: Sequence[str], **how: object) -> TestReport:
        return await settled(
            lambda: run_tests(
                box,
                self.snapshot.recipe,
                self.python,
                ids,
                timeout=self.rules.wall(self.snapshot.baseline, sum(self.seconds[i] for i in ids)),
                test_seconds={i: self._limit(i) for i in ids},
                **how,  # type: ignore[arg-type]
            )
        )


def before(snapshot: Snapshot, written: Written) -> dict[str, bytes | None]:
    """Every file that the start differs in or that the solution edits, as it is at the start."""
    found: dict[str, bytes | None] = {}
    for change in written.gold:
        file = snapshot.tree / change.path
        found[change.path] = file.read_bytes() if file.is_file() else None
    return found | {change.path: change.content for change in written.changes}


def _collected(path: str) -> bool:
    return path.endswith(".py") and not path.endswith("conftest.py")


def _bare(snapshot: Snapshot, written: Written, name: str) -> Task:
    """The task without what only runs can tell: no test decides yet."""
    start = before(snapshot, written)
    functions = edited_functions(start, {change.path: change.content for change in written.gold})
    hidden = [change for change in written.tests if change.content is not None]
    return Task(
        name=name,
        kind=written.kind,
        source=snapshot.source,
        snapshot=snapshot.key,
        runtime=snapshot.runtime,
        recipe=snapshot.recipe,
        start=_by_path(written.changes),
        gold=_by_path(written.gold),
        hidden=_by_path(hidden),
        fail_to_pass=(),
        pass_to_pass=(),
        hints=told.ladder(written, functions, None),
        rung=0,
        provenance=Provenance(
            proposer=written.proposer,
            operator=written.operator,
            seed=written.seed,
            edited_files=written.files,
            edited_functions=functions,
            author=written.author,
        ),
    )


def check_told(snapshot: Snapshot, written: Written, bare: Task) -> None:
    """What reading alone can tell of solution and statement. Raises Dropped."""
    start = before(snapshot, written)
    solved = {change.path: change.content for change in written.gold}
    in_tree = lambda path: (snapshot.tree / path).exists()  # noqa: E731
    if split(bare, written.gold, in_tree=in_tree).dropped:
        raise Dropped(DropReason.SOLUTION_EDITS_TESTS)
    if leak.in_statement(written.statement, start, solved, written.tests):
        raise Dropped(DropReason.STATEMENT_LEAKS)
    if sufficiency.untold(written.statement, snapshot.tree, start, solved, written.tests):
        raise Dropped(DropReason.UNTOLD)


def _proof(snapshot: Snapshot, written: Written, bare: Task, found: _Found) -> Proof:
    """Steps 5 and 6."""
    own = {change.path for change in written.tests}
    visible = []
    for path, chains in sorted(by_file(i for i in found.failing if _file(i) not in own).items()):
        whole = pristine_file(snapshot, path)
        content = without_tests(path, whole.content or b"", chains)
        if content is None:
            raise Dropped(DropReason.UNHIDEABLE)
        visible.append(FileChange(path, content, whole.executable))
    deciding = (*found.failing, *found.green)
    old = hidden_files(snapshot, [i for i in deciding if _file(i) not in own])
    shown = _shown(written, found)
    functions = bare.provenance.edited_functions
    task = replace(
        bare,
        start=_by_path([*bare.start, *visible]),
        hidden=_by_path([*bare.hidden, *old]),
        fail_to_pass=found.failing,
        pass_to_pass=found.green,
        hints=told.ladder(written, functions, shown),
        test_seconds=Rules().deadline(len(deciding), sum(found.seconds[i] for i in deciding)),
    )
    if leak.of_answer(snapshot, task):
        raise Dropped(DropReason.READABLE)
    return Proof(task, found.lines, found.seconds, found.ran)


def _by_path(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    return tuple(sorted(changes, key=lambda change: change.path))


def _shown(written: Written, found: _Found) -> symptom.Symptom | None:
    """What the first failing test of the author shows; None where it cannot even be imported."""
    contents = {change.path: change.content or b"" for change in written.tests}
    for node_id in found.failing:
        failure = found.failures.get(node_id)
        if failure is not None and _file(node_id) in contents:
            return symptom.told(failure)
    return None


def _file(node_id: str) -> str:
    return node_id.partition("::")[0]


def hidden_files(snapshot: Snapshot, ids: Sequence[str]) -> list[FileChange]:
    """The test files of these ids and the conftest files above them, as they were."""
    paths = set(by_file(ids))
    for path in tuple(paths):
        parts = path.split("/")[:-1]
        for depth in range(len(parts) + 1):
            conftest = "/".join([*parts[:depth], "conftest.py"])
            if (snapshot.tree / conftest).is_file():
                paths.add(conftest)
    return [pristine_file(snapshot, path) for path in sorted(paths)]
