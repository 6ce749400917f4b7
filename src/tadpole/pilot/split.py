"""Which task is trained on and which is held out: by the source files that they edit.

The split of a run is kept in its ``split.json``.
"""

import json
import random
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

from tadpole.errors import RunError, TaskError
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.trace import Record

FILE = "split.json"

SourceFile = tuple[str, str]  # location of its repository, path in it


class Part(StrEnum):
    """The parts."""

    TRAIN = "train"
    VALIDATION = "validation"  # chooses among the checkpoints of a round
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

    def count(self, part: Part) -> int:
        """How many tasks a part has."""
        return sum(place.part is part for place in self.places)

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


def split(tasks: Sequence[Task], held_out_share: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Training and held-out tasks, each in the order given.

    No file that a held-out task edits is edited by a training task. Whole groups of files move,
    so the share is met as closely as the groups allow; with two groups or more, and a share
    between 0 and 1, neither part is empty.
    """
    groups = _groups(tasks)
    random.Random(seed).shuffle(groups)
    wanted = held_out_share * len(tasks)
    held: set[int] = set()
    taken = 0
    for group in groups:
        misses_now, misses_then = abs(wanted - len(held)), abs(wanted - len(held) - len(group))
        last_one = taken == len(groups) - 1
        if misses_then <= misses_now and not (last_one and held_out_share < 1):
            held |= set(group)
            taken += 1
    if not held and 0 < held_out_share < 1 and len(groups) > 1:
        held = set(sorted(groups, key=len)[0])
    train = [task for number, task in enumerate(tasks) if number not in held]
    return train, [task for number, task in enumerate(tasks) if number in held]


def files_of(tasks: Iterable[Task]) -> frozenset[SourceFile]:
    """The source files that tasks edit."""
    return frozenset(
        (task.source.location, path) for task in tasks for path in task.provenance.edited_files
    )


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
        raise RunError(
            f"{path} is damaged ({str(error).splitlines()[0]}): remove it, and calibrate again"
        ) from None


def _groups(tasks: Sequence[Task]) -> list[list[int]]:
    """Indices of tasks that are tied together by files, in the order of their first task."""
    owner: dict[SourceFile, int] = {}
    parent = list(range(len(tasks)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for number, task in enumerate(tasks):
        for path in task.provenance.edited_files:
            first = owner.setdefault((task.source.location, path), number)
            one, other = sorted((root(first), root(number)))
            parent[other] = one
    groups: dict[int, list[int]] = {}
    for number in range(len(tasks)):
        groups.setdefault(root(number), []).append(number)
    return list(groups.values())
