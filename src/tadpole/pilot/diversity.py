"""How many tasks of a round may be alike: caps by repository, operator, function and kind.

Shares are of the round's quota, and a cap is never below one task. What is counted is what was
taken, in the order of taking, so that the same order gives the same round.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tadpole.pilot.candidate import Candidate
from tadpole.task import Task, TaskKind


class Trait(StrEnum):
    """What tasks may have in common."""

    REPOSITORY = "repository"
    OPERATOR = "operator"
    KIND = "kind"
    FUNCTION = "function"


@dataclass(frozen=True)
class Caps:
    """The most that a round takes; shares of its quota, but for functions a number of tasks."""

    repository: float = 1.0
    operator: float = 1.0
    kind: float = 1.0
    function: int = 0  # 0: any number


NO_CAPS = Caps()
Traits = Sequence[tuple[Trait, str]]


class Quota:
    """What a round has taken, and what it may take yet. ``count`` 0: any number, no caps."""

    def __init__(self, count: int, caps: Caps = NO_CAPS) -> None:
        self.count = count
        shares = {
            Trait.REPOSITORY: caps.repository,
            Trait.OPERATOR: caps.operator,
            Trait.KIND: caps.kind,
        }
        self._most = {trait: max(1, int(share * count + 1e-9)) for trait, share in shares.items()}
        if caps.function:
            self._most[Trait.FUNCTION] = caps.function
        self._taken: Counter[tuple[Trait, str]] = Counter()
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether the round has all that it wants."""
        return 0 < self.count <= self._size

    def refuses(self, traits: Traits) -> Trait | None:
        """The first cap that one more with these traits would break."""
        if not self.count:
            return None
        for trait, value in traits:
            if self._taken[trait, value] >= self._most.get(trait, self.count):
                return trait
        return None

    def take(self, traits: Traits) -> None:
        """Count one more."""
        self._size += 1
        self._taken.update(set(traits))


def traits_of(task: Task) -> Traits:
    """The traits of a task."""
    made = task.provenance
    return _traits(
        task.source.location, made.operator, task.kind, made.edited_files, made.edited_functions
    )


def traits_of_candidate(candidate: Candidate, repository: str) -> Traits:
    """The traits that its task will have; its kind where the candidate knows it."""
    kind = getattr(candidate, "kind", TaskKind.BUG_FIX)
    return _traits(repository, candidate.operator, kind, candidate.files, candidate.functions)


def _traits(
    repository: str,
    operator: str,
    kind: TaskKind,
    files: Sequence[str],
    functions: Sequence[str],
) -> Traits:
    places = [f"{repository} {','.join(files)} {function}" for function in functions]
    return [
        (Trait.REPOSITORY, repository),
        (Trait.OPERATOR, operator),
        (Trait.KIND, kind.value),
        *((Trait.FUNCTION, place) for place in places),
    ]


def dealt(tasks: Sequence[Task]) -> list[Task]:
    """The same tasks, one of each repository in turn: a cut anywhere leaves a mixture."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.source.location, []).append(task)
    longest = max(map(len, groups.values()), default=0)
    return [
        group[place] for place in range(longest) for group in groups.values() if place < len(group)
    ]
