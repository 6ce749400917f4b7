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
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice

from tadpole.pilot.candidate import Site
from tadpole.pilot.code import Code, parse
from tadpole.pilot.operators import OPERATORS, Splice
from tadpole.pilot.sources import sources_of
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


def mutants_of(snapshot: Snapshot, site: Site, buggy: bytes, count: int) -> list[Mutant]:
    """Up to ``count`` mutants of the lines of ``site``, of as many operators as there are.

    ``buggy`` is the file with the bug, which is no mutant of the repair. Seeded by the repair,
    so they are the same wherever the repository lies.
    """
    code = sources_of(snapshot).code(site.path)
    executable = pristine_file(snapshot, site.path).executable
    lines = {site.line, *site.lines}
    return [] if code is None else mutants_in(code, executable, lines, buggy, count)


def mutants_in(
    code: Code,
    executable: bool,
    lines: AbstractSet[int],
    before: bytes | None,
    count: int,
) -> list[Mutant]:
    """The same for these lines of any repaired file; ``before`` is it without the repair."""
    known = {code.dump}
    with contextlib.suppress(ValueError):  # a start that is no Python is no mutant either
        known.add(Code.decode(code.path, before or b"").dump)
    rng = random.Random(f"mutants {code.path} {sorted(lines)} {code.text}")
    splices: list[tuple[str, list[Splice]]] = []
    around = [one for one in code.functions if not lines.isdisjoint(one.lines)]
    for name in sorted(OPERATORS):
        found = [splice for one in around for splice in OPERATORS[name].find(code, one)]
        found = [splice for splice in found if code.line_of(splice.start) in lines]
        rng.shuffle(found)
        splices.append((name, found))
    rng.shuffle(splices)

    def in_turn() -> Iterator[Mutant]:
        # Each is parsed only when its turn comes: a file has many, and few are wanted.
        while any(found for _, found in splices):
            for name, found in splices:
                text = _next_new(code, found, known)
                if text is not None:
                    yield Mutant(name, FileChange(code.path, code.encode(text), executable))

    return list(islice(in_turn(), count))


def _next_new(code: Code, splices: list[Splice], known: set[str]) -> str | None:
    """The text after the next of ``splices`` that gives a program which is not in ``known``."""
    while splices:
        splice = splices.pop()
        text = code.text[: splice.start] + splice.text + code.text[splice.end :]
        try:
            dump = ast.dump(parse(text))
        except ValueError:
            continue
        if dump not in known:
            known.add(dump)
            return text
    return None


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
    variants = [_tried(task, snapshot, site, mutant, rules) for site, mutant in mutants]
    killed = await noticed(variants, snapshot, store=store, engine=engine)
    return counted(task, len(mutants), killed)


async def noticed(
    variants: Sequence[Variant],
    snapshot: Snapshot,
    *,
    store: Store,
    engine: SandboxEngine,
    setup: Sequence[FileChange] = (),
) -> int:
    """On how many of the variants a test fails that was asked for; ``setup`` lies below them.

    Raises SandboxError.
    """
    if not variants:
        return 0
    files = {change.path for variant in variants for change in variant.changes}
    known = {path: snapshot.baseline.imported(path) for path in files}
    box = await engine.start(with_reporter(store.box(snapshot)))
    try:
        if setup:
            await box.write(setup)
        reports = await run_variants(
            box,
            snapshot.recipe,
            store.python(snapshot),
            variants,
            imported={path: lines for path, lines in known.items() if lines is not None},
        )
    finally:
        await box.close()
    return sum(not set(report.statuses) <= report.passed for report in reports)


def counted(task: Task, mutants: int, killed: int) -> Task:
    """With these and the missing repair, which is known to be noticed."""
    return replace(task, measured=replace(task.measured, mutants=mutants + 1, killed=killed + 1))


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
        [(site, mutant) for mutant in mutants_of(snapshot, site, start[site.path], count)]
        for site in sites
        if site.lines
    ]
    longest = max(map(len, groups), default=0)
    turns = [group[turn] for turn in range(longest) for group in groups if turn < len(group)]
    fresh: dict[bytes, tuple[Site, Mutant]] = {}
    for site, mutant in turns:
        fresh.setdefault(mutant.change.content or b"", (site, mutant))
    return list(fresh.values())[:count]
