"""The validation ladder: from a candidate to a task, by running tests and nothing else.

1. one run of the tests that reach the edit, and of a sample of the others: what fails, and
   what stays green; it stops as soon as too much fails
2. the failing and the chosen green ones again under two more hash seeds, once in reverse order
3. without the hidden tests, what stays visible still runs
4. statements, and the dictated edit gives exactly the pristine file
5. the very grader that the policy meets: an empty patch gets 0, the repair gets 1
6. wrong repairs (:mod:`tadpole.pilot.strength`): enough of them are noticed

Guards against: flaky tests, tests that fail for another reason than the edit, tests that vanish
instead of failing, hanging tests, repairs that do not repair, and tests that are too weak to
tell a wrong repair from a right one. Does not guard against tests that are weak in a way which
no mutant shows.
"""

from collections.abc import Sequence
from dataclasses import replace

from tadpole.errors import GraderError
from tadpole.outcome import GradeStatus
from tadpole.pilot import leak, statement, symptom
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.code import Code
from tadpole.pilot.dictation import dictate
from tadpole.pilot.hide import by_file
from tadpole.pilot.proof import prove
from tadpole.pilot.rivals import strength_of_written
from tadpole.pilot.strength import strength
from tadpole.pilot.trial import Found, Rules, Trial, pristine_file
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.pilot.written import Written
from tadpole.protocols import Grader, SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import with_reporter
from tadpole.task import FileChange, Hint, Measured, Provenance, Task, TaskKind
from tadpole.textfile import TextFile


class Validator:
    """Makes tasks of candidates. Its boxes come from ``store`` and ``engine``."""

    def __init__(
        self, store: Store, engine: SandboxEngine, grader: Grader, rules: Rules | None = None
    ) -> None:
        self.store = store
        self.engine = engine
        self.grader = grader
        self.rules = rules or Rules()

    async def validate(self, snapshot: Snapshot, candidate: Candidate, name: str) -> Task:
        """The task, at its top rung.

        Raises :class:`Dropped` with the reason, SandboxError or GraderError where it could not
        be told.
        """
        if isinstance(candidate, Written):
            return await self._written(snapshot, candidate, name)
        site = candidate.sites[0]
        pristine = Code.decode(site.path, (snapshot.tree / site.path).read_bytes())
        dictated = dictate(pristine, site)
        if dictated is None:
            raise Dropped(DropReason.UNDICTATED)
        sandbox = await self.engine.start(with_reporter(self.store.box(snapshot)))
        try:
            await sandbox.write(candidate.changes)
            trial = Trial(self.rules, snapshot, candidate, sandbox, self.store.python(snapshot))
            found = await trial.confirm()
            visible = await trial.hide(found)
        finally:
            await sandbox.close()
        first = symptom.smallest(found.failures, snapshot.tree)
        seen = symptom.read(first, found.failures[first], snapshot.tree)
        hints = statement.ladder(snapshot.name, candidate, seen, pristine, dictated)
        task = self._task(snapshot, candidate, name, found, visible, hints)
        start = next(change.content for change in task.start if change.path == site.path) or b""
        file = TextFile.decode(start)
        repaired = file.with_text(file.text.replace(dictated.old, dictated.new)).encode()
        if file.text.count(dictated.old) != 1 or repaired != task.gold[0].content:
            raise Dropped(DropReason.UNDICTATED)
        if leak.of_answer(snapshot, task):
            raise Dropped(DropReason.READABLE)
        await self._gate(task)
        task = replace(task, measured=await self._rewritable(task))
        task = await strength(
            task,
            snapshot,
            candidate.sites,
            store=self.store,
            engine=self.engine,
            rules=self.rules,
        )
        rate = task.measured.kill_rate
        if rate is not None and rate < self.rules.min_kill_rate:
            raise Dropped(DropReason.WEAK)
        return task

    async def _written(self, snapshot: Snapshot, written: Written, name: str) -> Task:
        """What somebody wrote has its own first steps, and the same grader and strength."""
        proof = await prove(
            snapshot, written, name, store=self.store, engine=self.engine, rules=self.rules
        )
        await self._gate(proof.task)
        task = replace(proof.task, measured=await self._rewritable(proof.task))
        task = await strength_of_written(
            task, snapshot, proof, store=self.store, engine=self.engine, rules=self.rules
        )
        rate = task.measured.kill_rate
        if rate is not None and rate < self.rules.min_kill_rate:
            raise Dropped(DropReason.WEAK)
        return task

    async def _rewritable(self, task: Task) -> Measured:
        """Which tests can be rewritten for tier 3, where the grader goes that far."""
        functions = {i.partition("[")[0] for i in (*task.fail_to_pass, *task.pass_to_pass)}
        oracles = await self.grader.oracles(task)
        found = None if oracles is None else tuple(oracles.items())
        return Measured(functions=len(functions), oracles=found)

    def _task(  # noqa: PLR0917
        self,
        snapshot: Snapshot,
        candidate: Candidate,
        name: str,
        found: Found,
        visible: tuple[FileChange, ...],
        hints: tuple[Hint, ...],
    ) -> Task:
        seconds = sum(snapshot.baseline.seconds[i] for i in (*found.failing, *found.green))
        return Task(
            name=name,
            kind=TaskKind.BUG_FIX,
            source=snapshot.source,
            snapshot=snapshot.key,
            runtime=snapshot.runtime,
            recipe=snapshot.recipe,
            start=tuple(sorted((*candidate.changes, *visible), key=lambda change: change.path)),
            gold=tuple(pristine_file(snapshot, path) for path in candidate.files),
            hidden=_hidden(snapshot, (*found.failing, *found.green)),
            fail_to_pass=found.failing,
            pass_to_pass=found.green,
            hints=hints,
            rung=statement.TOP,
            provenance=Provenance(
                proposer=candidate.proposer,
                operator=candidate.operator,
                seed=candidate.seed,
                edited_files=candidate.files,
                edited_functions=candidate.functions,
            ),
            test_seconds=round(20 + self.rules.slack * seconds, 1),
        )

    async def _gate(self, task: Task) -> None:
        for delta, wanted, reason in (
            ((), False, DropReason.FREE),
            (task.gold, True, DropReason.UNSOLVED),
        ):
            grade = await self.grader.grade(task, delta)
            if grade.status is GradeStatus.INVALID:
                raise GraderError(f"{task.name} could not be graded: {grade.reason}")
            if grade.resolved != wanted:
                raise Dropped(reason)


def _hidden(snapshot: Snapshot, ids: Sequence[str]) -> tuple[FileChange, ...]:
    """The test files of these ids and the conftest files above them, as they were."""
    paths = set(by_file(ids))
    for path in tuple(paths):
        parts = path.split("/")[:-1]
        for depth in range(len(parts) + 1):
            conftest = "/".join([*parts[:depth], "conftest.py"])
            if (snapshot.tree / conftest).is_file():
                paths.add(conftest)
    return tuple(pristine_file(snapshot, path) for path in sorted(paths))
