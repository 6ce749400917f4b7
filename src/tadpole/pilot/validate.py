"""The validation ladder: from a candidate to a task, by running tests and nothing else.

1. what fails and what stays green, in forked processes and in one whole run of the suite
   (:mod:`tadpole.pilot.screening`)
2. that it is so under two more hash seeds, once in reverse order (the same)
3. without the hidden tests, what stays visible still runs
4. of a composed bug, each part matters (:mod:`tadpole.pilot.inverse`)
5. statements that tell enough (:mod:`tadpole.pilot.admission`), and where an edit is dictated it
   gives exactly the pristine file; nobody can read the answer (:mod:`tadpole.pilot.leak`)
6. the very grader that the policy meets (:mod:`tadpole.pilot.gates`), in boxes that tasks share
   (:mod:`tadpole.grading.shared`) but for what somebody wrote
7. wrong repairs (:mod:`tadpole.pilot.strength`): enough of them are noticed

Guards against: flaky tests, tests that fail for another reason than the edit, tests that vanish
instead of failing, hanging tests, repairs that do not repair, and tests that are too weak to
tell a wrong repair from a right one. Does not guard against tests that are weak in a way which
no mutant shows.
"""

from collections.abc import Sequence
from dataclasses import replace

from tadpole.pilot import admission, inverse, leak, onlyrepair, request, statement, symptom
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.dictation import Dictated, dictate
from tadpole.pilot.gates import gate
from tadpole.pilot.proof import hidden_files, prove
from tadpole.pilot.rivals import strength_of_written
from tadpole.pilot.screening import Screening
from tadpole.pilot.sources import Sources, sources_of
from tadpole.pilot.strength import counted, strength
from tadpole.pilot.symptom import Symptom
from tadpole.pilot.trial import Found, Rules, Trial, pristine_file, reduced
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.pilot.written import Written
from tadpole.protocols import Grader, SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.task import FileChange, Hint, Measured, Provenance, Task
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
        self.screening = Screening(store, engine, self.rules)

    def expect(self, snapshot: Snapshot, candidates: Sequence[Candidate]) -> None:
        """Say which candidates come next: what is screened together costs less."""
        screened = [one for one in candidates if not isinstance(one, Written)]
        self.screening.expect(snapshot, screened)

    async def validate(self, snapshot: Snapshot, candidate: Candidate, name: str) -> Task:
        """The task, at its top rung.

        Raises :class:`Dropped` with the reason, SandboxError or GraderError where it could not
        be told.
        """
        if isinstance(candidate, Written):
            return await self._written(snapshot, candidate, name)
        if admission.unasked(candidate):
            raise Dropped(DropReason.NO_STATEMENT)
        sources = sources_of(snapshot)
        plain = not candidate.request and not candidate.origin
        is_single = plain and len(candidate.sites) == 1
        dictated = self._dictated(sources, candidate) if is_single else None
        found = await self.screening.found(snapshot, candidate)
        groups: Sequence[Sequence[str]] = [found.failing]
        visible, mentioned = reduced(snapshot, found)
        trial = Trial(self.rules, snapshot, candidate, self.store, self.engine)
        try:
            if candidate.parts:
                groups = await inverse.shares(trial, found)
            if mentioned:
                await trial.run_visible(found, visible)
        finally:
            await trial.close()
        codes = {path: code for path in candidate.files if (code := sources.code(path))}
        hidden = onlyrepair.names(candidate, codes)
        symptoms = [
            onlyrepair.without(self._symptom(snapshot, found, group), hidden) for group in groups
        ]
        failing = admission.groups(found.failures, snapshot.tree, hidden)
        symptoms += admission.others(candidate, codes, snapshot.tree, symptoms, failing)
        if dictated is None:
            hints = request.ladder(snapshot.name, candidate, symptoms)
        else:
            [code] = codes.values()
            hints = statement.ladder(snapshot.name, candidate, symptoms, code, dictated)
        task = self._task(snapshot, candidate, name, found, visible, hints)
        documented = admission.known(candidate, codes, snapshot.tree)
        hints = admission.admitted(
            task, snapshot.tree, documented=documented, told=symptoms, failing=failing
        )
        if not hints:
            raise Dropped(DropReason.UNTOLD)
        task = replace(task, hints=hints, rung=hints[-1].rung)
        if dictated is not None:
            _check(task, dictated)
        if leak.of_answer(snapshot, task):
            raise Dropped(DropReason.READABLE)
        ours = self.grader.trusting  # every change is of our own making
        reaching, red = snapshot.baseline.tests_of, set(found.failing)
        await gate(task, ours, 4, lambda *place: not red.isdisjoint(reaching(*place)))
        task = replace(task, measured=await self._rewritable(task, ours))
        if found.mutants:  # tried already, together with those of other candidates
            task = counted(task, found.mutants, found.killed)
        else:
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

    @staticmethod
    def _dictated(sources: Sources, candidate: Candidate) -> Dictated:
        [site] = candidate.sites
        code = sources.code(site.path)
        dictated = None if code is None else dictate(code, site)
        if dictated is None:
            raise Dropped(DropReason.UNDICTATED)
        return dictated

    @staticmethod
    def _symptom(snapshot: Snapshot, found: Found, group: Sequence[str]) -> Symptom:
        """What the smallest test of a group shows."""
        failures = {i: found.failures[i] for i in group if i in found.failures}
        if not failures:
            raise Dropped(DropReason.UNSTABLE)
        first = symptom.smallest(failures, snapshot.tree)
        return symptom.read(first, failures[first], snapshot.tree)

    async def _written(self, snapshot: Snapshot, written: Written, name: str) -> Task:
        """What somebody wrote has its own first steps, and the same grader and strength."""
        proof = await prove(
            snapshot, written, name, store=self.store, engine=self.engine, rules=self.rules
        )
        await gate(proof.task, self.grader, runs=proof.runs)
        task = replace(proof.task, measured=await self._rewritable(proof.task, self.grader))
        task = await strength_of_written(
            task, snapshot, proof, store=self.store, engine=self.engine, rules=self.rules
        )
        rate = task.measured.kill_rate
        if rate is not None and rate < self.rules.min_kill_rate:
            raise Dropped(DropReason.WEAK)
        return task

    @staticmethod
    async def _rewritable(task: Task, grader: Grader) -> Measured:
        """Which tests can be rewritten for tier 3, where the grader goes that far."""
        functions = {i.partition("[")[0] for i in (*task.fail_to_pass, *task.pass_to_pass)}
        oracles = await grader.oracles(task)
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
        deciding = (*found.failing, *found.green)
        seconds = sum(snapshot.baseline.seconds[i] for i in deciding)
        return Task(
            name=name,
            kind=candidate.kind,
            source=snapshot.source,
            snapshot=snapshot.key,
            runtime=snapshot.runtime,
            recipe=snapshot.recipe,
            start=tuple(sorted((*candidate.changes, *visible), key=lambda change: change.path)),
            gold=tuple(pristine_file(snapshot, path) for path in candidate.files),
            hidden=tuple(hidden_files(snapshot, deciding)),
            fail_to_pass=found.failing,
            pass_to_pass=found.green,
            hints=hints,
            rung=hints[-1].rung,
            provenance=Provenance(
                proposer=candidate.proposer,
                operator=candidate.operator,
                seed=candidate.seed,
                edited_files=candidate.files,
                edited_functions=candidate.functions,
                origin=candidate.origin,
            ),
            test_seconds=self.rules.deadline(len(deciding), seconds),
        )


def _check(task: Task, dictated: Dictated) -> None:
    """Raises Dropped where the dictated edit of the start does not give the repair."""
    start = next(change.content for change in task.start if change.path == dictated.path) or b""
    file = TextFile.decode(start)
    repaired = file.with_text(file.text.replace(dictated.old, dictated.new)).encode()
    if file.text.count(dictated.old) != 1 or repaired != task.gold[0].content:
        raise Dropped(DropReason.UNDICTATED)
