"""Which calibrated task is trained on and which is held out: ``split.json`` of a run."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from tadpole.errors import RunError, TaskError
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.trace import Record

FILE = "split.json"


class Part(StrEnum):
    """The two parts."""

    TRAIN = "train"
    HELD_OUT = "held out"


class Place(Record):
    """Where one calibrated task went, and how it came out of calibration."""

    name: str
    id: str  # at this rung
    rung: int
    part: Part
    passes: int
    valid: int  # trusted attempts


class Split(Record):
    """All calibrated tasks that were kept."""

    format: Literal[1] = 1
    places: tuple[Place, ...]

    def find(self, name: str) -> Place | None:
        """The place of a task by name; None where it was not kept."""
        return next((place for place in self.places if place.name == name), None)

    def tasks(self, part: Part, tasks: Sequence[Task]) -> list[Task]:
        """The tasks of one part, at their rungs. Raises TaskError where one is gone or changed."""
        by_name = {task.name: task for task in tasks}
        found = []
        for place in self.places:
            if place.part is part:
                task = by_name.get(place.name)
                task = task and task.at_rung(place.rung)
                if task is None or task.id != place.id:
                    raise TaskError(
                        f"task {place.name} is not the one that {FILE} names: "
                        "restore it, or start a new run"
                    )
                found.append(task)
        return found


def save_split(rundir: RunDir, split: Split) -> None:
    """Keep the split."""
    rundir.write(FILE, json.dumps(split.model_dump(mode="json"), indent=1).encode() + b"\n")


def load_split(rundir: RunDir) -> Split | None:
    """The split of a run; None where there is none yet. Raises RunError where it is damaged."""
    path = rundir.path / FILE
    try:
        return Split.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
