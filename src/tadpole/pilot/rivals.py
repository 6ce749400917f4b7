"""How many wrong repairs the tests of a written task notice: mutants of the written solution.

As :mod:`tadpole.pilot.strength`, for tests and lines that the repository never had: each mutant
changes a line that the solution adds or edits, and all deciding tests are run against it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from tadpole.pilot.code import Code
from tadpole.pilot.proof import Proof
from tadpole.pilot.strength import Mutant, mutants_in
from tadpole.pilot.trial import Rules, pristine_file
from tadpole.protocols import SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import with_reporter
from tadpole.repos.variants import Variant, run_variants
from tadpole.task import FileChange, Task


async def strength_of_written(
    task: Task,
    snapshot: Snapshot,
    proof: Proof,
    *,
    store: Store,
    engine: SandboxEngine,
    rules: Rules,
) -> Task:
    """The task with its kill rate in ``measured``; as it is where ``rules.mutants`` is 0.

    The caller has seen that the missing repair is noticed. Raises SandboxError.
    """
    if not rules.mutants:
        return task
    start = {change.path: change.content for change in task.start}
    groups = []
    for good in task.gold:
        if good.path.endswith(".py") and proof.lines.get(good.path):
            old = start.get(good.path)
            if old is None and (snapshot.tree / good.path).is_file():
                old = pristine_file(snapshot, good.path).content
            code = Code.decode(good.path, good.content or b"")
            lines, seed = set(proof.lines[good.path]), f"mutants {task.id} {good.path}"
            groups.append(mutants_in(code, good.executable, lines, old, rules.mutants, seed))
    turns = zip_longest(*groups)  # the files in turn
    mutants = [mutant for turn in turns for mutant in turn if mutant][: rules.mutants]
    ids = (*task.fail_to_pass, *task.pass_to_pass)
    bench = _Bench(snapshot, store, engine, rules, proof.seconds)
    setup = (*task.start, *task.hidden)
    killed = await bench.killed(mutants, ids, task.gold, setup) if mutants else 0
    return _measured(task, len(mutants), killed)


def _measured(task: Task, mutants: int, killed: int) -> Task:
    """With the missing repair, which is known to be noticed."""
    return replace(task, measured=replace(task.measured, mutants=mutants + 1, killed=killed + 1))


@dataclass(frozen=True)
class _Bench:
    """Where mutants are tried."""

    snapshot: Snapshot
    store: Store
    engine: SandboxEngine
    rules: Rules
    seconds: Mapping[str, float]

    async def killed(
        self,
        mutants: Sequence[Mutant],
        ids: Sequence[str],
        gold: Sequence[FileChange],
        setup: Sequence[FileChange],
    ) -> int:
        """How many the tests notice; ``setup`` and ``gold`` are put into the pristine tree."""
        limits = {i: self._limit(i) for i in ids}
        seconds = 20 + 3 * sum(self.seconds[i] for i in ids)
        variants = [
            # Fresh: what an edited file runs at import nobody has measured.
            Variant((mutant.change,), tuple(ids), seconds, limits, maxfail=1, fresh=True)
            for mutant in mutants
        ]
        box = await self.engine.start(with_reporter(self.store.box(self.snapshot)))
        try:
            if setup or gold:
                await box.write([*setup, *gold])
            reports = await run_variants(
                box,
                self.snapshot.recipe,
                self.store.python(self.snapshot),
                variants,
                imported={},
            )
        finally:
            await box.close()
        return sum(not set(ids) <= report.passed for report in reports)

    def _limit(self, node_id: str) -> float:
        return max(self.rules.shortest_limit, self.rules.slack * self.seconds[node_id])
