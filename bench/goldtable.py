"""Gold and no-op of every task, by library, tier and turn: `python bench/grading.py TASKS --table`.

Each grading is by a new grader, so that nothing comes from its memory. What infrastructure broke
is tried again once, at the end; where it stays broken it is counted apart and makes the table
fail: it is neither a 0 nor a 1. With a journal, a second run goes on where the first one stopped.
"""

import asyncio
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from tadpole.errors import SandboxUnavailable, TadpoleError
from tadpole.evals.validity import NO_OP
from tadpole.grading.cache import grader_version
from tadpole.grading.grader import PytestGrader
from tadpole.outcome import GradeStatus, Tier
from tadpole.progress import Bar, Progress
from tadpole.task import Task
from tadpole.together import together

TASKS, LIBRARIES = 200, 8  # bar: at least as many
CHANGES = ("gold", "no-op")


@dataclass(frozen=True)
class Cell:
    """One grading that is wanted."""

    task: str  # id
    change: str
    tier: int
    turn: int


@dataclass(frozen=True)
class Got:
    """What came of it."""

    status: str
    resolved: bool
    tier: int  # at which it was proven
    reason: str
    seconds: float
    functions: int = 0  # of the task, and how many of them can be rewritten
    rewritable: int = 0

    @property
    def known(self) -> bool:
        """Whether something was graded at all."""
        return self.status != GradeStatus.INVALID.value


class Grading(Protocol):
    """What grades the tasks."""

    tasks: list[Task]

    def grader(self, tier: Tier) -> PytestGrader:
        """A new one."""
        ...

    async def known(self, task: Task) -> Task:
        """The task with what its making found out about its oracles."""
        ...


class Journal:
    """Gradings that are done, one a line; without a path they are only in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.got: dict[Cell, Got] = {}
        version = grader_version()
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
            if text and not text.endswith("\n"):
                file.write("\n")  # a kill cut the last line: it must not spoil the next one
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # torn by a kill
            if row.pop("version") == version:
                self.got[Cell(**row["cell"])] = Got(**row["got"])

    def put(self, cell: Cell, got: Got) -> None:
        """Keep one; it is on disk when this returns."""
        self.got[cell] = got
        if self._path is None:
            return
        row = {"version": grader_version(), "cell": asdict(cell), "got": asdict(got)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


class GoldTable:
    """The gradings of some tasks, and the table of them."""

    def __init__(self, bench: Grading, turns: int, journal: Path | None) -> None:
        self.tasks = {task.id: task for task in bench.tasks}
        self.turns, self.journal = turns, Journal(journal)
        self._bench = bench

    def _cells(self) -> Iterator[Cell]:
        for turn in range(self.turns):
            for task in self.tasks:
                for tier in Tier:
                    for change in CHANGES:
                        yield Cell(task, change, tier.value, turn)

    async def fill(self, progress: Progress) -> None:
        """Grade what is not known yet, on all cores that this process may use."""
        cells = list(self._cells())
        for what in ("grade", "grade once more"):
            left = [cell for cell in cells if not self._known(cell)]
            if not left:
                return
            with progress.task(what, total=len(cells), done=len(cells) - len(left)) as bar:
                queue, cores = iter(left), len(os.sched_getaffinity(0))
                await together(self._work(queue, progress, bar) for _ in range(cores))

    async def _work(self, queue: Iterator[Cell], progress: Progress, bar: Bar) -> None:
        for cell in queue:
            got = await self._graded(cell)
            self.journal.put(cell, got)
            task = self.tasks[cell.task]
            told = f"{task.source.location} {task.name} {cell.change} at tier {cell.tier}"
            if got.status != GradeStatus.GRADED.value or got.resolved != (cell.change == "gold"):
                progress.say(f"{told}: {got.status}: {got.reason}")
            bar.advance(note=told)

    async def _graded(self, cell: Cell) -> Got:
        try:
            task = self.tasks[cell.task] = await self._bench.known(self.tasks[cell.task])
            change = task.gold if cell.change == "gold" else NO_OP
            grade = await self._bench.grader(Tier(cell.tier)).grade(task, change)
        except SandboxUnavailable:
            raise
        except TadpoleError as error:
            return Got(GradeStatus.INVALID.value, False, cell.tier, str(error), 0.0)
        tier = grade.tier.value
        counts = task.measured.functions, len(task.measured.oracles or ())
        return Got(grade.status.value, grade.resolved, tier, grade.reason, grade.seconds, *counts)

    def _known(self, cell: Cell) -> bool:
        got = self.journal.got.get(cell)
        return got is not None and got.known

    def show(self) -> bool:
        """Print the table; whether all bars hold."""
        rows: dict[str, Counter[str]] = defaultdict(Counter)
        for task in self.tasks.values():
            rows[task.source.location]["tasks"] += 1
        for cell in self._cells():
            row, got = rows[self.tasks[cell.task].source.location], self.journal.got.get(cell)
            if got is None or not got.known:
                row["unknown"] += 1
                continue
            if (cell.change, cell.tier, cell.turn) == ("gold", Tier.CHALLENGED.value, 0):
                row["functions"] += got.functions
                row["rewritable"] += got.rewritable
            row[f"{cell.change} {cell.tier}"] += got.resolved
            row[f"of {cell.change} {cell.tier}"] += 1
            row["tampered"] += got.status == GradeStatus.TAMPERED.value
            row["proven 3"] += cell.change == "gold" and got.resolved and got.tier == 3
        columns = [f"{change} {tier.value}" for tier in Tier for change in CHANGES]
        more = ["proven 3", "tampered", "unknown", "functions", "rewritable"]
        names = ["tasks", *columns, *more]
        print(f"{'library':<22}" + "".join(f"{name:>12}" for name in names))
        total: Counter[str] = Counter()
        for library in sorted(rows):
            print(f"{library[-22:]:<22}" + _line(rows[library], columns, more))
            total.update(rows[library])
        print(f"{'all':<22}" + _line(total, columns, more))
        return all([self._say(*one) for one in self._bars(total, len(rows))])

    def _bars(self, total: Mapping[str, int], libraries: int) -> Iterator[tuple[bool, str]]:
        count = len(self.tasks)
        yield (
            count >= TASKS and libraries >= LIBRARIES,
            f"{count} tasks of {libraries} libraries (bar: {TASKS} of {LIBRARIES})",
        )
        for tier in Tier:
            wanted = count * self.turns
            gold, free = total[f"gold {tier.value}"], total[f"no-op {tier.value}"]
            yield gold == wanted, f"tier {tier.value}: {gold} of {wanted} golds graded 1"
            graded = total[f"of no-op {tier.value}"]
            yield (
                free == 0 and graded == wanted,
                f"tier {tier.value}: {free} no-ops graded 1, of {graded} that were graded",
            )
        yield total["unknown"] == 0, f"{total['unknown']} gradings that infrastructure broke"
        yield total["tampered"] == 0, f"{total['tampered']} honest changes called tampered"

    @staticmethod
    def _say(holds: bool, line: str) -> bool:
        print(f"{'ok ' if holds else 'BAD'} {line}", flush=True)
        return holds


def _line(row: Mapping[str, int], columns: Sequence[str], more: Sequence[str]) -> str:
    shares = [f"{row[name]}/{row['of ' + name]}" for name in columns]
    return "".join(f"{cell:>12}" for cell in [row["tasks"], *shares, *(row[n] for n in more)])


def run(bench: Grading, turns: int, journal: Path | None) -> bool:
    """Fill and print; whether all bars hold. What is done so far is printed on an interrupt too."""
    table = GoldTable(bench, turns, journal)
    try:
        asyncio.run(table.fill(Progress()))
    except KeyboardInterrupt:
        table.show()
        raise
    return table.show()
