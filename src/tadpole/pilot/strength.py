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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tadpole.pilot.candidate import Site
from tadpole.pilot.code import Code, parse
from tadpole.pilot.operators import OPERATORS
from tadpole.pilot.trial import Rules, pristine_file
from tadpole.protocols import SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import with_reporter
from tadpole.repos.variants import Variant, run_variants
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
    mutants = _of_all(task, snapshot, sites, rules.mutants)
    killed = 0
    if mutants:
        files = {site.path for site, _ in mutants}
        known = {path: snapshot.baseline.imported(path) for path in files}
        box = await engine.start(with_reporter(store.box(snapshot)))
        try:
            reports = await run_variants(
                box,
                snapshot.recipe,
                store.python(snapshot),
                [_tried(task, snapshot, site, mutant, rules) for site, mutant in mutants],
                imported={path: lines for path, lines in known.items() if lines is not None},
            )
        finally:
            await box.close()
        killed = sum(not set(report.statuses) <= report.passed for report in reports)
    measured = replace(task.measured, mutants=len(mutants) + 1, killed=killed + 1)
    return replace(task, measured=measured)


def _tried(task: Task, snapshot: Snapshot, site: Site, mutant: Mutant, rules: Rules) -> Variant:
    """A mutant, and the deciding tests that execute its site."""
    reaching = set(snapshot.baseline.tests_of(site.path, site.lines))
    ids = tuple(i for i in (*task.fail_to_pass, *task.pass_to_pass) if i in reaching)
    seconds = snapshot.baseline.seconds
    limits = {i: rules.limit(seconds[i]) for i in ids}
    most = 20 + 3 * sum(seconds[i] for i in ids)
    return Variant((mutant.change,), ids, most, limits, maxfail=1)


def _of_all(
    task: Task, snapshot: Snapshot, sites: Sequence[Site], count: int
) -> list[tuple[Site, Mutant]]:
    """Mutants of the sites that tests reach, taken in turns."""
    start = {change.path: change.content or b"" for change in task.start}
    groups = [
        [
            (site, mutant)
            for mutant in mutants_of(
                snapshot, site, start[site.path], count, f"mutants {task.id}{number or ''}"
            )
        ]
        for number, site in enumerate(sites)
        if site.lines
    ]
    longest = max(map(len, groups), default=0)
    turns = [group[turn] for turn in range(longest) for group in groups if turn < len(group)]
    fresh: dict[bytes, tuple[Site, Mutant]] = {}
    for site, mutant in turns:
        fresh.setdefault(mutant.change.content or b"", (site, mutant))
    return list(fresh.values())[:count]
