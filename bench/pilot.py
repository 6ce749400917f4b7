"""What a validated task costs: our ladder beside whole runs in fresh processes, on the same bugs.

    python bench/pilot.py                                  # jinja2, boltons, sqlparse
    python bench/pilot.py --sources pypi:boltons --candidates 12
    python bench/pilot.py --tier 3                         # gates with rewritten tests, too

For each library the same seeded single-site candidates are validated twice in the same process:

- ours: screened in forked processes, repeated under two more hash seeds, once in the whole suite
  (:mod:`tadpole.pilot.screening`); then, counted apart, everything else that a task needs
  (statements, hidden tests, the grader's gates, strength)
- whole suite before and after the change, each in a fresh process and box, as SWE-smith does

Printed are processor seconds (of this process and everything that it started), each figure with
its bar, and how far the candidates came. The ratio compares the two ways up to the confirmed bug.
Tasks an hour are what two idle cores give that are never without work (a round of several
libraries); the clock's own figure, one library at a time, is printed beside. Where the two ways
find other failing tests, the whole runs are made once more: what they do not show again is a flake
of theirs, and is told. Exit code 1 where the median over the libraries misses a bar.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tadpole.outcome import TestStatus, Tier
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.journal import Step, count
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.testrun import TestReport, run_tests, with_reporter
from tadpole.rundir import cache_dir
from tadpole.timing import cpu_seconds
from tadpole.workshop import Workshop

CORES = 2
CPU_BAR, HOUR_BAR, RATIO_BAR = 2.6, 2700, 2.0


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
    different: dict[str, list[str]]  # candidate -> tests that only one way calls failing
    flaky: dict[str, list[str]]  # the same where a second look at the other way took it back
    told: str  # how far they came

    @property
    def per_confirmed(self) -> float:
        """Processor seconds a confirmed bug, those of the dropped candidates included."""
        return self.screening / max(1, self.confirmed)

    @property
    def per_task(self) -> float:
        """Processor seconds a task, after every gate."""
        return (self.screening + self.rest) / max(1, self.kept)

    @property
    def an_hour(self) -> float:
        """Tasks an hour on cores that are never without work."""
        return CORES * 3600 / self.per_task

    @property
    def ratio(self) -> float:
        """How much more the other way costs for the same candidates."""
        return self.whole / self.screening


class Ways:
    """Both ways for one library. Each part runs in a loop of its own, so that boxes have ended."""

    def __init__(
        self, workshop: Workshop, source: str, asked: int, seed: int, rules: Rules
    ) -> None:
        self.workshop, self.source = workshop, source
        self.snapshot = asyncio.run(workshop.store.snapshot(source))
        self.validator = Validator(workshop.store, workshop.engine, workshop.grader, rules)
        stream = SingleSite().propose(self.snapshot, random.Random(f"{seed} {source}"))
        self.candidates = [one for one, _ in zip(stream, range(asked), strict=False)]
        self.found: dict[str, set[str]] = {}
        self.steps: list[Step] = []

    async def screen(self) -> None:
        """Ours, up to the confirmed bug."""
        for number, one in enumerate(self.candidates):
            self.validator.expect(self.snapshot, self.candidates[number:])
            try:
                found = await self.validator.screening.found(self.snapshot, one)
                self.found[one.key] = set(found.failing)
            except Dropped as drop:
                self._note(number, one, drop)

    async def finish(self) -> None:
        """Ours, all that follows."""
        free = asyncio.Semaphore(CORES)

        async def finished(number: int, one: Candidate) -> None:
            async with free:
                try:
                    await self.validator.validate(self.snapshot, one, f"bench-{number:04d}")
                    self._note(number, one, None)
                except Dropped as drop:
                    self._note(number, one, drop)

        numbered = enumerate(self.candidates)
        await asyncio.gather(*(finished(n, one) for n, one in numbered if one.key in self.found))

    def _note(self, number: int, one: Candidate, drop: Dropped | None) -> None:
        step = Step.of(self.source, number, one, None, drop and drop.reason)
        self.steps.append(step)

    async def whole(self) -> dict[str, list[str]]:
        """The other way; tests that only one way calls failing, by confirmed candidate."""
        seen = {
            one.key: await _before_and_after(self.workshop, self.snapshot, one)
            for one in self.candidates
        }
        return {
            key: sorted(seen[key] ^ ours) for key, ours in self.found.items() if seen[key] ^ ours
        }

    async def again(self, keys: set[str]) -> dict[str, list[str]]:
        """The same once more, for some."""
        self.candidates = [one for one in self.candidates if one.key in keys]
        self.found = {key: ours for key, ours in self.found.items() if key in keys}
        return await self.whole()


def measure(workshop: Workshop, source: str, asked: int, seed: int, rules: Rules) -> Row:
    """Validate the same candidates both ways."""
    ways = Ways(workshop, source, asked, seed, rules)
    start, clock = cpu_seconds(), time.monotonic()
    asyncio.run(ways.screen())
    screened = cpu_seconds()
    asyncio.run(ways.finish())
    finished, wall = cpu_seconds(), time.monotonic() - clock
    confirmed, candidates = len(ways.found), len(ways.candidates)
    differing = asyncio.run(ways.whole())
    ended = cpu_seconds()
    lasting = asyncio.run(ways.again(set(differing))) if differing else {}
    return Row(
        source=source,
        candidates=candidates,
        confirmed=confirmed,
        kept=sum(step.reason is None for step in ways.steps),
        screening=screened - start,
        rest=finished - screened,
        wall=wall,
        whole=ended - finished,
        different=lasting,
        flaky={key: ids for key, ids in differing.items() if key not in lasting},
        told=str(count(ways.steps)),
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


def show(name: str, row: Row) -> None:
    """One library."""
    clock = 3600 * row.kept / row.wall
    print(f"{name}: {row.kept} tasks of {row.confirmed} confirmed of {row.candidates} candidates")
    print("\n".join(f"    {line}" for line in row.told.splitlines()))
    print(f"  CPU s a confirmed bug {row.per_confirmed:8.2f}")
    _bar("CPU s a task", row.per_task, CPU_BAR, most=True)
    _bar("tasks an hour", row.an_hour, HOUR_BAR, note=f"by the clock, alone: {clock:.0f}")
    _bar("times cheaper", row.ratio, RATIO_BAR, note=f"whole runs {row.whole:.0f} CPU s")
    print(f"  same failing tests    {row.confirmed - len(row.different)} of {row.confirmed}")
    for told, found in (("only one way fails", row.different), ("a flake", row.flaky)):
        for key, ids in found.items():
            print(f"    {key}: {told} {', '.join(ids[:5])}")
    sys.stdout.flush()


def _bar(what: str, value: float, bar: float, *, most: bool = False, note: str = "") -> bool:
    holds = value <= bar if most else value >= bar
    word = "at most" if most else "at least"
    told = f"  ({note})" if note else ""
    verdict = "holds" if holds else "MISSED"
    print(f"  {what:<21} {value:8.2f}  bar {word} {bar:g}  {verdict}{told}")
    return holds


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sources", default="pypi:jinja2,pypi:boltons,pypi:sqlparse")
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--mutants", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tier", type=int, choices=(1, 3), default=1, help="of the gates")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    asked = parser.parse_args()
    workshop = Workshop.open(cache_dir(), tier=Tier(asked.tier))
    rules, rows = Rules(mutants=asked.mutants), []
    for source in asked.sources.split(","):
        rows.append(measure(workshop, source, asked.candidates, asked.seed, rules))
        show(source, rows[-1])
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(f"median of {len(rows)}, gates at tier {asked.tier}, {asked.mutants} mutants")
    held = [
        _bar("CPU s a task", statistics.median(row.per_task for row in rows), CPU_BAR, most=True),
        _bar("tasks an hour", statistics.median(row.an_hour for row in rows), HOUR_BAR),
        _bar("times cheaper", statistics.median(row.ratio for row in rows), RATIO_BAR),
    ]
    same = not any(row.different for row in rows)
    print(f"  same failing tests    {'all' if same else 'NOT all'}")
    return int(not (all(held) and same))


if __name__ == "__main__":
    sys.exit(main())
