"""One run and what its stages share: configuration, run directory, workshop, progress."""

from dataclasses import dataclass
from pathlib import Path

from tadpole.config import Config
from tadpole.errors import RunError
from tadpole.pilot import taskdir
from tadpole.pilot.split import Part, SourceFile, load_split
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.workshop import Workshop


@dataclass(frozen=True)
class Job:
    """What a stage works with."""

    config: Config
    rundir: RunDir
    workshop: Workshop
    progress: Progress
    round: int = 1  # see tadpole.rounds
    closed: frozenset[SourceFile] = frozenset()  # files that no task of this round may edit

    @property
    def validates(self) -> bool:
        """Whether checkpoints are chosen by validation tasks."""
        return self.round > 1 or self.config.train.rounds > 1

    @property
    def task_directory(self) -> Path:
        """Where the task directories are."""
        given = self.config.tasks.dir
        return Path(given) if given else self.rundir.path / "tasks"

    @property
    def warms_up(self) -> bool:
        """Whether the policy is warmed up before anything else."""
        return self.config.warms_up

    def seed(self, own: int) -> int:
        """The seed of a section: its own on top of that of the run."""
        return self.config.run.seed * 1000 + own

    def tasks(self) -> list[Task]:
        """The tasks that were made. Raises TaskError where there are none."""
        return taskdir.load_set(self.task_directory)

    def part(self, part: Part) -> list[Task]:
        """The tasks of one part of the split.

        Raises RunError before calibration, TaskError where a task is gone or was changed.
        """
        found = load_split(self.rundir)
        if found is None:
            raise RunError(
                f"{self.rundir.path} is not calibrated: run tadpole tasks calibrate --run "
                f"{self.rundir.path}"
            )
        return found.tasks(part, self.tasks())
