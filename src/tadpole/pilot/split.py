"""Splits tasks into training and held-out ones, by the source files that they edit."""

import random
from collections.abc import Sequence

from tadpole.task import Task

Place = tuple[str, str]  # source and file


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


def _groups(tasks: Sequence[Task]) -> list[list[int]]:
    """Indices of tasks that are tied together by files, in the order of their first task."""
    owner: dict[Place, int] = {}
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
