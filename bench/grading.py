"""What grading costs and whether it is right: `python bench/grading.py TASKS`.

Prints, all measured in one run:

- time of tier 1 and of tier 3 against plain `pytest` of the same ids in the same kind of box
  (bars: 1.3 and 3.5 times), interleaved, medians over the tasks that are timed;
- gradings a minute of the median task on all cores that this process may use (bar on 2: 60);
- gold and no-op of every task at both tiers, by library (bars: all resolved; none).

`--table` prints the last of these alone, for many tasks; with `--journal FILE` it goes on where
an earlier run stopped. Exit code 1 where a bar does not hold.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import goldtable

from tadpole.grading.grader import PytestGrader
from tadpole.grading.run import graded_ids
from tadpole.outcome import Tier
from tadpole.pilot.taskdir import load_set
from tadpole.repos.store import Store
from tadpole.rundir import cache_dir
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.task import FileChange, Measured, Task
from tadpole.together import together

BARS = {Tier.HARDENED: 1.3, Tier.CHALLENGED: 3.5}
A_MINUTE = 60.0


class Bench:
    """The tasks, and what grades them."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)
        self.engine = BubblewrapEngine()
        self.store = Store(cache_dir(), self.engine)
        self.failed = False

    def grader(self, tier: Tier) -> PytestGrader:
        """A new one, so that nothing comes from its memory."""
        return PytestGrader(self.engine, self.store, tier=tier)

    async def plain(self, task: Task) -> float | None:
        """Seconds of `pytest` with the gold, box and files included; None where it fails."""
        spec = await self.store.spec(task)
        started = time.monotonic()
        box = await self.engine.start(spec)
        try:
            await box.write([*task.gold, *task.hidden])
            options = [*task.recipe.pytest_args, "-q", "-p", "no:cacheprovider", "--tb=no"]
            argv = [self.store.python(task), "-m", "pytest", *options, *graded_ids(task)]
            done = await box.exec(argv, timeout=600)
        finally:
            await box.close()
        return time.monotonic() - started if done.code == 0 else None

    async def graded(self, task: Task, tier: Tier, delta: Sequence[FileChange]) -> float:
        """Seconds of one grading."""
        grader = self.grader(tier)
        await self.store.spec(task)
        started = time.monotonic()
        grade = await grader.grade(task, delta)
        seconds = time.monotonic() - started
        if not grade.resolved:
            self.say(False, f"{task.name} at tier {tier.value}: {grade.reason}")
        return seconds

    async def known(self, task: Task) -> Task:
        """The task with what its making found out about its oracles."""
        if task.measured.oracles is not None:
            return task
        found = await self.grader(Tier.CHALLENGED).oracles(task) or {}
        functions = len({i.partition("[")[0] for i in graded_ids(task)})
        return replace(task, measured=Measured(functions=functions, oracles=tuple(found.items())))

    def say(self, holds: bool, line: str) -> None:
        """Print a line; one that does not hold makes the exit code 1."""
        self.failed |= not holds
        print(f"{'ok ' if holds else 'BAD'} {line}", flush=True)

    async def overhead(self, tasks: Sequence[Task], repeats: int) -> Task:
        """Time the tasks; returns the median one by its time at tier 1."""
        ratios: dict[Tier, list[float]] = defaultdict(list)
        costs: dict[str, float] = {}
        by_rounds: dict[int, list[float]] = defaultdict(list)
        for task in tasks:
            seconds: dict[object, list[float]] = defaultdict(list)
            for _ in range(repeats):
                plain = await self.plain(task)
                if plain is None:
                    break
                seconds["plain"].append(plain)
                for tier in Tier:
                    seconds[tier].append(await self.graded(task, tier, task.gold))
            if not seconds:
                print(f"    {task.name}: plain pytest does not pass these ids, not timed")
                continue
            plain = statistics.median(seconds["plain"])
            for tier in Tier:
                ratios[tier].append(statistics.median(seconds[tier]) / plain)
            costs[task.name] = statistics.median(seconds[Tier.HARDENED])
            functions = len({i.partition("[")[0] for i in task.fail_to_pass})
            by_rounds[min(functions, 3)].append(ratios[Tier.CHALLENGED][-1])
            told = "".join(f"  tier {tier.value} {ratios[tier][-1]:5.2f}x" for tier in Tier)
            print(
                f"    {task.name:<20} plain {plain:6.2f} s{told}  ({functions} functions repaired)"
            )
        for tier, bar in BARS.items():
            value = statistics.median(ratios[tier])
            self.say(value <= bar, f"tier {tier.value}: {value:.2f} times plain pytest (bar {bar})")
        for functions, values in sorted(by_rounds.items()):
            more = "or more " if functions == 3 else ""
            told = f"tier 3, {functions} {more}repaired functions"
            print(f"    {told}: {statistics.median(values):.2f} times, {len(values)} tasks")
        ranked = sorted(costs, key=costs.__getitem__)
        return next(task for task in tasks if task.name == ranked[len(ranked) // 2])

    async def speed(self, task: Task, count: int) -> None:
        """Gradings a minute, of changes that differ so that none is remembered."""
        cores = len(os.sched_getaffinity(0))
        grader, numbers = self.grader(Tier.HARDENED), iter(range(count))

        async def work() -> None:
            for number in numbers:
                noise = FileChange("noise.txt", str(number).encode())
                await grader.grade(task, [*task.gold, noise])

        started = time.monotonic()
        await together(work() for _ in range(cores))
        rate = 60 * count / (time.monotonic() - started)
        told = f"{rate:.0f} gradings a minute of {task.name} on {cores} cores (bar {A_MINUTE:.0f})"
        self.say(rate >= A_MINUTE, told)


async def timings(bench: Bench, timed: int, repeats: int, gradings: int) -> None:
    """What grading costs."""
    tasks = [await bench.known(task) for task in bench.tasks[:timed]]
    await bench.speed(await bench.overhead(tasks, repeats), gradings)


def main() -> int:
    """Run all parts; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", type=Path, help="directories of tasks")
    parser.add_argument("--table", action="store_true", help="the table of golds and no-ops alone")
    parser.add_argument("--journal", type=Path, help="file of what the table already knows")
    parser.add_argument("--limit", type=int, default=0, help="most tasks in the table; 0: all")
    parser.add_argument("--timed", type=int, default=10, help="tasks that are timed")
    parser.add_argument(
        "--repeat", type=int, default=3, help="times of each timing, gold and no-op"
    )
    parser.add_argument("--gradings", type=int, default=40, help="for gradings a minute")
    asked = parser.parse_args()
    found = {task.id: task for directory in asked.tasks for task in load_set(directory)}
    bench = Bench(_spread(list(found.values()))[: asked.limit or None])
    if not asked.table:
        asyncio.run(timings(bench, asked.timed, asked.repeat, asked.gradings))
    table = goldtable.run(bench, asked.repeat, asked.journal)
    return int(bench.failed or not table)


def _spread(tasks: Sequence[Task]) -> list[Task]:
    """Libraries in turn, so that a limit cuts all of them alike."""
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        groups[task.source.location].append(task)
    longest = max(map(len, groups.values()))
    return [g[turn] for turn in range(longest) for g in groups.values() if turn < len(g)]


if __name__ == "__main__":
    sys.exit(main())
