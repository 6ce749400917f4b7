"""What a report tells, read from a run directory. A run that is not finished has less to tell."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tadpole.config import Config, saved
from tadpole.errors import RunError, TadpoleError, UsageError
from tadpole.evals.intervals import Estimate, Tally
from tadpole.evals.policies import PolicyRole, PolicyRow, policies
from tadpole.evals.scoreboard import Scoreboard, compare
from tadpole.pilot.harvest import Harvest, harvest
from tadpole.pilot.split import Split, load_split
from tadpole.rl import metrics
from tadpole.rl.metrics import UpdateRow
from tadpole.rundir import CONFIG, RunDir
from tadpole.task import Task
from tadpole.timing import TABLE as STAGES
from tadpole.timing import StageRow
from tadpole.trace import Attempt


@dataclass(frozen=True)
class TaskLine:
    """One row of the task table."""

    task: Task
    part: str  # "train", "validation", "held out", "dropped", or "" before the split
    rung: int
    calibrated: Tally | None
    before: Tally | None
    after: Tally | None


@dataclass(frozen=True)
class Story:
    """All that the report shows."""

    run: RunDir
    facts: dict[str, Any]
    config: Config
    boards: dict[PolicyRole, Scoreboard]
    policies: dict[PolicyRole, PolicyRow]
    gain: Estimate | None  # after - before, paired over tasks
    updates: list[UpdateRow]
    tasks: list[TaskLine]
    attempts: list[Attempt]  # of the evaluation
    stages: list[StageRow]
    harvest: Harvest | None = None  # of the tasks that were made here
    notices: list[str] = field(default_factory=list)  # what could not be read

    @property
    def sources(self) -> list[tuple[str, str, str, int]]:
        """(name, version, licence, tasks) of each repository."""
        counts: dict[tuple[str, str, str], int] = {}
        for line in self.tasks:
            source = line.task.source
            key = (source.location, source.version, source.licence)
            counts[key] = counts.get(key, 0) + 1
        return [(*key, count) for key, count in sorted(counts.items())]

    def part(self, name: str) -> int:
        """How many tasks are in a part of the split."""
        return sum(line.part == name for line in self.tasks)


def collect(run: RunDir) -> Story:
    """Read a run. Raises RunError where its rows are damaged or of an unknown version."""
    config = saved(run.path / CONFIG)
    notices: list[str] = []
    roles = policies(run)
    attempts = run.rows("eval", Attempt)
    boards = {role: Scoreboard.of(attempts, row.fingerprint) for role, row in roles.items()}
    boards = {role: board for role, board in boards.items() if board.attempts or board.untrusted}
    before, after = boards.get(PolicyRole.BEFORE), boards.get(PolicyRole.AFTER)
    tasks = _tasks(run, config, notices)
    return Story(
        run=run,
        facts=run.facts,
        config=config,
        boards=boards,
        policies=roles,
        gain=compare(before, after) if before and after else None,
        updates=_updates(run),
        tasks=_lines(tasks, load_split(run), _measured(run), before, after),
        attempts=attempts,
        stages=run.rows(STAGES, StageRow),
        harvest=_harvest(run, notices),
        notices=notices,
    )


def _tasks(run: RunDir, config: Config, notices: list[str]) -> list[Task]:
    directory = Path(config.tasks.dir) if config.tasks.dir else run.path / "tasks"
    if not directory.is_dir():
        return []
    from tadpole.pilot.taskdir import load_set

    try:
        return load_set(directory)
    except TadpoleError as error:
        notices.append(f"The tasks could not be read: {error}")
        return []


def _harvest(run: RunDir, notices: list[str]) -> Harvest | None:
    try:
        return harvest(run.path)
    except UsageError as error:
        if isinstance(error, RunError):
            notices.append(f"The yield could not be read: {error}")
        return None  # the tasks were made elsewhere, or not yet


def _lines(
    tasks: Sequence[Task],
    split: Split | None,
    measured: dict[str, Tally],
    before: Scoreboard | None,
    after: Scoreboard | None,
) -> list[TaskLine]:
    lines = []
    for task in tasks:
        place = split.find(task.name) if split else None
        chosen = task.at_rung(place.rung) if place else task
        lines.append(
            TaskLine(
                task=chosen,
                part=place.part.value if place else ("dropped" if split else ""),
                rung=chosen.rung,
                calibrated=measured.get(task.name),
                before=before.tallies.get(chosen.id) if before else None,
                after=after.tallies.get(chosen.id) if after else None,
            )
        )
    order = {"held out": 0, "validation": 1, "train": 2, "": 3, "dropped": 4}
    return sorted(lines, key=lambda line: (order[line.part], line.task.name))


def _measured(run: RunDir) -> dict[str, Tally]:
    """The last measurement of each task by calibration, by name."""
    from tadpole.pilot.calibrate import VERDICTS, Measured

    rows = run.rows(VERDICTS, Measured)
    return {row.name: Tally(row.passes, row.valid) for row in rows if row.valid}


def _updates(run: RunDir) -> list[UpdateRow]:
    """Those of all rounds, numbered through.

    A resumed climb repeats the updates after its last checkpoint: the later row holds.
    """
    found: list[UpdateRow] = []
    for one in run.rounds():
        before = found[-1].update if found else 0
        rows = {row.update: row for row in one.rows(metrics.TABLE, UpdateRow)}
        found += [
            row.model_copy(update={"update": before + row.update})
            for _, row in sorted(rows.items())
        ]
    return found
