"""Which tasks an update is made on. Pure."""

import random
from collections.abc import Sequence

from tadpole.task import Task


def pick_tasks(tasks: Sequence[Task], count: int, update: int, seed: int) -> list[Task]:
    """The tasks of one update: all tasks in a seeded order, then all again in another one.

    Depends on (seed, update) alone, so that a resumed climb meets the same tasks. No task comes
    twice in one update unless there are fewer than ``count``.
    """
    ordered = sorted(tasks, key=lambda task: task.name)
    chosen: list[Task] = []
    position = (update - 1) * count
    while len(chosen) < min(count, len(ordered)):
        lap, place = divmod(position, len(ordered))
        order = ordered[:]
        random.Random(f"{seed} lap {lap}").shuffle(order)
        if order[place] not in chosen:
            chosen.append(order[place])
        position += 1
    return chosen
