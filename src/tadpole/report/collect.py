"""What a report tells, read from a run directory. A run that is not finished has less to tell."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tadpole.config import Config, saved
from tadpole.errors import RunError, TadpoleError, UsageError
from tadpole.evals.intervals import Estimate, Tally
from tadpole.evals.policies import PolicyRole, PolicyRow, policies
from tadpole.evals.scoreboard import Scoreboard, compare
from tadpole.pilot.harvest import Harvest, harvest
from tadpole.pilot.split import Part, load_split
from tadpole.report.rounds import Updates, all_updates, stages_of, updates_of
from tadpole.rundir import CONFIG, RunDir
from tadpole.task import Task
from tadpole.timing import StageRow
from tadpole.trace import Attempt


@dataclass(frozen=True)
class TaskLine:
    """One row of the task table."""

    task: Task
    round: int
    where: Path  # the directory of its set, which rounds may share
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
    updates: Updates
    tasks: list[TaskLine]  # of all rounds
    attempts: list[Attempt]  # of the evaluation
    stages: list[StageRow]
    harvests: dict[int, Harvest]  # by round, of the tasks that were made here
    notices: list[str] = field(default_factory=list)  # what could not be read

    @property
    def sources(self) -> list[tuple[str, str, str, int]]:
        """(name, version, licence, tasks) of each repository."""
        counts: dict[tuple[str, str, str], set[tuple[Path, str]]] = {}
        for line in self.tasks:
            source = line.task.source
            key = (source.location, source.version, source.licence)
            counts.setdefault(key, set()).add((line.where, line.task.name))
        return [(*key, len(names)) for key, names in sorted(counts.items())]

    @property
    def rounds(self) -> int:
        """How many have begun."""
        return len(self.updates.starts) + 1

    def count(self, *parts: str) -> int:
        """How many tasks there are; with ``parts``, in these of the split. Each counts once."""
        lines = (line for line in self.tasks if not parts or line.part in parts)
        return len({(line.where, line.task.name) for line in lines})


def collect(run: RunDir) -> Story:
    """Read a run. Raises RunError where its rows are damaged or of an unknown version."""
    config = saved(run.path / CONFIG)
    notices: list[str] = []
    roles = policies(run)
    attempts = run.rows("eval", Attempt)
    boards = {role: Scoreboard.of(attempts, row.fingerprint) for role, row in roles.items()}
    boards = {role: board for role, board in boards.items() if board.attempts or board.untrusted}
    before, after = boards.get(PolicyRole.BEFORE), boards.get(PolicyRole.AFTER)
    return Story(
        run=run,
        facts=run.facts,
        config=config,
        boards=boards,
        policies=all_updates(run, roles),
        gain=compare(before, after) if before and after else None,
        updates=updates_of(run, config),
        tasks=[
            line
            for number, one in enumerate(run.rounds(), start=1)
            for line in _lines(one, number, before, after, notices)
        ],
        attempts=attempts,
        stages=stages_of(run),
        harvests={
            number: found
            for number, one in enumerate(run.rounds(), start=1)
            if (found := _harvest(one, notices)) is not None
        },
        notices=notices,
    )


def _tasks(directory: Path, notices: list[str]) -> list[Task]:
    if not directory.is_dir():
        return []
    from tadpole.pilot.taskdir import load_set

    try:
        return load_set(directory)
    except TadpoleError as error:
        notice = f"The tasks could not be read: {error}"
        if notice not in notices:  # rounds may share them
            notices.append(notice)
        return []


def _harvest(run: RunDir, notices: list[str]) -> Harvest | None:
    try:
        return harvest(run.path)
    except UsageError as error:
        if isinstance(error, RunError):
            notices.append(f"The yield could not be read: {error}")
        return None  # the tasks were made elsewhere, or not yet


def _lines(
    run: RunDir,
    number: int,
    before: Scoreboard | None,
    after: Scoreboard | None,
    notices: list[str],
) -> list[TaskLine]:
    """Those of one round."""
    given = saved(run.path / CONFIG).tasks.dir
    directory = Path(given) if given else run.path / "tasks"
    split, measured = load_split(run), _measured(run)
    lines = []
    for task in _tasks(directory, notices):
        place = split.find(task.name) if split else None
        chosen = task.at_rung(place.rung) if place else task
        # What is held out was settled in the first round: later ones only leave it alone.
        used = place is not None and (number == 1 or place.part is not Part.HELD_OUT)
        lines.append(
            TaskLine(
                task=chosen,
                round=number,
                where=directory.absolute(),
                part=place.part.value if place and used else ("dropped" if split else ""),
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
