"""How many wrong repairs the tests of a task notice: mutants of the repaired lines.

Each mutant is the pristine file with one more operator applied to the lines that the bug was
on, and is run against those deciding tests that execute these lines. The missing repair counts
as one of them. A mutant that means the same as the original cannot be noticed, and lowers the
rate of a task whose tests are beyond reproach: the threshold leaves room for it.

Guards against: tests that fail with the bug, but pass with most other code in its place. Does not
guard against: wrong repairs of a kind that no operator makes.
"""

import ast
import contextlib
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from tadpole.pilot.candidate import Site
from tadpole.pilot.code import Code, parse
from tadpole.pilot.operators import OPERATORS
from tadpole.pilot.proof import Proof
from tadpole.pilot.trial import Rules, pristine_file
from tadpole.protocols import SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import run_tests, with_reporter
from tadpole.task import FileChange, Task


@dataclass(frozen=True)
class Mutant:
    """A wrong repair: the whole file, and by which operator it came to be."""

    operator: str
    change: FileChange


def mutants_of(snapshot: Snapshot, site: Site, buggy: bytes, count: int, seed: str) -> list[Mutant]:
    """Up to ``count`` mutants of the lines of ``site``, of as many operators as there are.

    ``buggy`` is the file with the bug, which is no mutant of the repair. Seeded.
    """
    good = pristine_file(snapshot, site.path)
    return mutants_in(good, {site.line, *site.lines}, buggy, count, seed)


def mutants_in(
    good: FileChange, lines: Collection[int], before: bytes | None, count: int, seed: str
) -> list[Mutant]:
    """The same for these lines of any repaired file; ``before`` is it without the repair."""
    path, executable = good.path, good.executable
    code = Code.decode(path, good.content or b"")
    known = {code.dump}
    with contextlib.suppress(ValueError):  # a start that is no Python is no mutant either
        known.add(Code.decode(path, before or b"").dump)
    rng, found = random.Random(seed), list[list[Mutant]]()
    for name in sorted(OPERATORS):
        of_this = []
        for function in code.functions:
            for splice in OPERATORS[name].find(code, function):
                if code.line_of(splice.start) not in lines:
                    continue
                text = code.text[: splice.start] + splice.text + code.text[splice.end :]
                try:
                    dump = ast.dump(parse(text))
                except ValueError:
                    continue
                if dump not in known:
                    known.add(dump)
                    change = FileChange(path, code.encode(text), executable)
                    of_this.append(Mutant(name, change))
        rng.shuffle(of_this)
        found.append(of_this)
    rng.shuffle(found)
    longest = max(map(len, found), default=0)
    turns = [group[turn] for turn in range(longest) for group in found if turn < len(group)]
    return turns[:count]


async def strength(
    task: Task,
    snapshot: Snapshot,
    sites: Sequence[Site],
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
    site = sites[0]
    buggy = next(change.content for change in task.start if change.path == site.path) or b""
    mutants = mutants_of(snapshot, site, buggy, rules.mutants, f"mutants {task.id}")
    reaching = set(snapshot.baseline.tests_of(site.path, site.lines))
    ids = [i for i in (*task.fail_to_pass, *task.pass_to_pass) if i in reaching]
    bench = _Bench(snapshot, store, engine, rules, snapshot.baseline.seconds)
    killed = await bench.killed(mutants, ids, [task.gold[0]], ()) if mutants else 0
    return _measured(task, len(mutants), killed)


async def strength_of_written(
    task: Task,
    snapshot: Snapshot,
    proof: Proof,
    *,
    store: Store,
    engine: SandboxEngine,
    rules: Rules,
) -> Task:
    """The same for a solution that somebody wrote: mutants of all the lines that it edits."""
    if not rules.mutants:
        return task
    start = {change.path: change.content for change in task.start}
    groups = []
    for good in task.gold:
        if good.path.endswith(".py") and proof.lines.get(good.path):
            old = start.get(good.path)
            if old is None and (snapshot.tree / good.path).is_file():
                old = pristine_file(snapshot, good.path).content
            lines, seed = proof.lines[good.path], f"mutants {task.id} {good.path}"
            groups.append(mutants_in(good, lines, old, rules.mutants, seed))
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
        repaired = {change.path: change for change in gold}
        killed = 0
        box = await self.engine.start(with_reporter(self.store.box(self.snapshot)))
        try:
            if setup:
                await box.write([*setup, *gold])
            for mutant in mutants:
                await box.write([mutant.change])
                report = await run_tests(
                    box,
                    self.snapshot.recipe,
                    self.store.python(self.snapshot),
                    ids,
                    timeout=20 + 3 * sum(self.seconds[i] for i in ids),
                    test_seconds={i: self._limit(i) for i in ids},
                    maxfail=1,
                )
                killed += not set(ids) <= report.passed
                await box.write([repaired[mutant.change.path]])
        finally:
            await box.close()
        return killed

    def _limit(self, node_id: str) -> float:
        return max(self.rules.shortest_limit, self.rules.slack * self.seconds[node_id])
