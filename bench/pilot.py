"""What a validated task costs: our ladder beside whole runs in fresh processes, on the same bugs.

    python bench/pilot.py                                  # jinja2, boltons, sqlparse
    python bench/pilot.py --sources pypi:boltons --candidates 12

For each library the same seeded single-site candidates are validated twice in the same process:

- ours: screened in forked processes, repeated under two more hash seeds, once in the whole suite
  (:mod:`tadpole.pilot.screening`); then, counted apart, everything else that a task needs
  (statements, hidden tests, the grader's gates, strength)
- whole suite before and after the change, each in a fresh process and box, as SWE-smith does

Printed are processor seconds (of this process and everything that it started) per candidate and
per task, their ratio, and whether both ways find the same failing tests. Exit code 1 where a bar
is missed: 2.6 seconds a task (median over libraries), a ratio of 2, and equal failing tests.
"""

import argparse
import asyncio
import json
import random
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tadpole.outcome import TestStatus
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.testrun import TestReport, run_tests, with_reporter
from tadpole.rundir import cache_dir
from tadpole.workshop import Workshop

CPU_BAR, RATIO_BAR = 2.6, 2.0
CORES = 2


@dataclass
class Row:
    """One library."""

    source: str
    candidates: int
    confirmed: int
    kept: int
    screening: float  # processor seconds of all candidates
    rest: float  # of what follows, for the confirmed ones
    wall: float  # seconds of both
    whole: float  # processor seconds of the other way, for all candidates
    same: int  # confirmed ones for which both ways find the same failing tests
    different: dict[str, list[str]]  # candidate -> tests that only one way calls failing

    @property
    def per_confirmed(self) -> float:
        """Processor seconds a confirmed bug, those of the dropped candidates included."""
        return self.screening / max(1, self.confirmed)

    @property
    def per_task(self) -> float:
        """Processor seconds a task, after every gate."""
        return (self.screening + self.rest) / max(1, self.kept)

    @property
    def ratio(self) -> float:
        """How much more the other way costs for the same candidates."""
        return self.whole / self.screening


def spent() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


async def measure(workshop: Workshop, source: str, count: int, seed: int, mutants: int) -> Row:
    """Validate the same candidates both ways."""
    snapshot = await workshop.store.snapshot(source)
    rules = Rules(mutants=mutants)
    validator = Validator(workshop.store, workshop.engine, workshop.grader, rules)
    stream = SingleSite().propose(snapshot, random.Random(f"{seed} {source}"))
    candidates = [one for one, _ in zip(stream, range(count), strict=False)]
    start, clock = spent(), time.monotonic()
    found: dict[str, tuple[str, ...]] = {}
    screening = validator.screening
    for number, one in enumerate(candidates):
        screening.expect(snapshot, candidates[number:])
        try:
            found[one.key] = (await screening.found(snapshot, one)).failing
        except Dropped:
            continue
    middle, kept = spent(), 0
    for one in candidates:
        if one.key in found:
            try:
                await validator.validate(snapshot, one, f"bench-{one.key}")
                kept += 1
            except Dropped:
                continue
    end, wall = spent(), time.monotonic() - clock
    different = {}
    for one in candidates:
        failing = await _before_and_after(workshop, snapshot, one)
        if one.key in found and failing != set(found[one.key]):
            different[one.key] = sorted(failing ^ set(found[one.key]))
    return Row(
        source=source,
        candidates=len(candidates),
        confirmed=len(found),
        kept=kept,
        screening=middle - start,
        rest=end - middle,
        wall=wall,
        whole=spent() - end,
        same=len(found) - len(different),
        different=different,
    )


async def _before_and_after(workshop: Workshop, snapshot: Snapshot, one: Candidate) -> set[str]:
    """What passes before a change and fails after it, each in one whole run."""
    before = await _whole(workshop, snapshot, None)
    after = await _whole(workshop, snapshot, one)
    red = (TestStatus.FAILED, TestStatus.ERROR)
    return {i for i in before.passed if after.statuses.get(i) in red}


async def _whole(workshop: Workshop, snapshot: Snapshot, one: Candidate | None) -> TestReport:
    limits = {i: max(2.0, 10 * s) for i, s in snapshot.baseline.seconds.items()}
    box = await workshop.engine.start(with_reporter(workshop.store.box(snapshot)))
    try:
        if one is not None:
            await box.write(one.changes)
        python = workshop.store.python(snapshot)
        return await run_tests(box, snapshot.recipe, python, test_seconds=limits)
    finally:
        await box.close()


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sources", default="pypi:jinja2,pypi:boltons,pypi:sqlparse")
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--mutants", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the rows here too")
    asked = parser.parse_args()
    workshop = Workshop.open(cache_dir())
    rows = []
    print(
        "library            candidates confirmed kept  CPU s/confirmed  CPU s/task  ratio  same F2P"
    )
    for source in asked.sources.split(","):
        row = asyncio.run(measure(workshop, source, asked.candidates, asked.seed, asked.mutants))
        rows.append(row)
        print(
            f"{row.source:<18} {row.candidates:>10} {row.confirmed:>9} {row.kept:>4}  "
            f"{row.per_confirmed:>15.2f}  {row.per_task:>10.2f}  {row.ratio:>5.2f}  "
            f"{row.same}/{row.confirmed}",
            flush=True,
        )
        for key, ids in row.different.items():
            print(f"  {key}: only one way fails {', '.join(ids[:5])}")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    confirmed = statistics.median(row.per_confirmed for row in rows)
    task = statistics.median(row.per_task for row in rows)
    ratio = statistics.median(row.ratio for row in rows)
    same = all(row.same == row.confirmed for row in rows)
    hour = CORES * 3600 / task
    print(
        f"median: {confirmed:.2f} CPU s a confirmed bug, {task:.2f} a task after every gate (bar "
        f"{CPU_BAR}), {hour:.0f} tasks an hour on {CORES} idle cores; whole runs before and after "
        f"cost {ratio:.2f} times as much (bar {RATIO_BAR}); same failing tests: {same}"
    )
    return int(task > CPU_BAR or ratio < RATIO_BAR or not same)


if __name__ == "__main__":
    sys.exit(main())
