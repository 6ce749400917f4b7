"""Refinement beyond words: tasks that are too easy are composed, those too hard fall apart.

Two tasks of one snapshot that the policy solves too often, though their statements tell the
least, become one task with both defects. A composed task that it solves too rarely, though its
statement tells the most, is taken apart into its single defects. What comes of it passes the
very same gates as any task, and is measured again; nothing is made that is like a task which is
there already.

The results lie beside the other tasks; ``refined.jsonl`` says what became of each try, so that a
killed process makes none twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tadpole.pilot import taskdir
from tadpole.pilot.decision import Verdict
from tadpole.pilot.journal import REFINED, TABLE, Step
from tadpole.pilot.judge import judge
from tadpole.pilot.likeness import Likeness, lines_of, lines_of_candidate
from tadpole.pilot.origin import Origin
from tadpole.pilot.proposers.composition import compose
from tadpole.pilot.sources import Sources
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import DropReason
from tadpole.pilot.walk import Refined, Walk
from tadpole.rundir import RunDir
from tadpole.task import Task, TaskKind


def refined_names(directory: Path) -> set[str]:
    """The tasks of a directory that came of others."""
    return {step.task for step in RunDir(directory).rows(REFINED, Step) if step.task}


def origins_known(directory: Path) -> int:
    """How many tasks of a directory its journal can tell the origin of."""
    return sum(bool(step.task) for step in RunDir(directory).rows(TABLE, Step))


@dataclass
class Refiner:
    """Makes new tasks of measured ones, into ``directory``. ``origins`` are by task name."""

    directory: Path
    origins: dict[str, Origin]
    validator: Validator
    max_moves: int

    def wanted(self, walks: Sequence[Walk], moved: Mapping[str, int]) -> bool:
        """Whether one of the walks could be refined at all."""
        return any(
            self._moves(walk, moved) <= self.max_moves
            and (_at_its_hardest(walk) or _at_its_easiest(walk))
            for walk in walks
        )

    async def refine(self, walks: Sequence[Walk], moved: Mapping[str, int]) -> list[Refined]:
        """New tasks of those that came out too easy or too hard, in the order of the walks.

        ``moved`` says how often tasks, by name, were moved before their walk. Raises SandboxError
        or GraderError where validation keeps breaking.
        """
        tries = list(self._proposed(walks, moved))
        if not tries:
            return []
        known = Likeness()
        run = RunDir(self.directory)
        for step in [*run.rows(TABLE, Step), *run.rows(REFINED, Step)]:
            if step.task:  # and not what a killed process saved without a row
                known.add(lines_of(taskdir.load(self.directory / step.task)))
        found: list[Refined] = []
        for name, origin, moves in tries:
            task = await self._made(name, origin, known)
            if task is not None:
                self.origins[task.name] = origin
                found.append(Refined(task, moves))
        return found

    def _proposed(
        self, walks: Sequence[Walk], moved: Mapping[str, int]
    ) -> Iterator[tuple[str, Origin, int]]:
        """(name, what it is made of, moves) of everything that may be tried."""
        waiting: dict[str, tuple[Walk, int]] = {}  # too easy and not composed yet, by snapshot
        for walk in walks:
            origin = self.origins.get(walk.task.name)
            moves = self._moves(walk, moved)
            if origin is None or moves > self.max_moves:
                continue
            if _at_its_hardest(walk):
                other = waiting.pop(origin.snapshot.key, None)
                joined = other and self._joined(other[0].task, walk.task)
                if other and joined:
                    name = f"{other[0].task.name}-{walk.task.name.rpartition('-')[2]}"
                    yield name, joined, max(moves, other[1])
                else:
                    waiting[origin.snapshot.key] = (walk, moves)
            elif _at_its_easiest(walk):
                for number, part in enumerate(origin.candidate.parts, start=1):
                    name = f"{walk.task.name}-part{number}"
                    yield name, Origin(origin.snapshot, part), moves

    @staticmethod
    def _moves(walk: Walk, moved: Mapping[str, int]) -> int:
        return moved.get(walk.task.name, 0) + walk.moves + 1

    def _joined(self, one: Task, other: Task) -> Origin | None:
        first, second = self.origins[one.name], self.origins[other.name]
        parts = [part for o in (first, second) for part in o.candidate.parts or (o.candidate,)]
        kinds = {part.kind for part in parts}
        if kinds != {TaskKind.BUG_FIX} or any(not part.sites or part.request for part in parts):
            return None  # only bugs at known places are composed
        made = compose(Sources(first.snapshot), parts, first.candidate.seed)
        return None if made is None else Origin(first.snapshot, made)

    async def _made(self, name: str, origin: Origin, known: Likeness) -> Task | None:
        """Validate and save it, where that was not done before."""
        run = RunDir(self.directory)
        repository = origin.snapshot.source.location
        for step in run.rows(REFINED, Step):
            if (step.candidate, step.source) == (origin.candidate.key, repository):
                return taskdir.load(self.directory / step.task) if step.task else None
        task, reason = None, None
        lines = lines_of_candidate(origin.candidate, repository, origin.snapshot.tree)
        if known.has_like(lines):
            reason = DropReason.ALIKE
        else:
            judged = await judge(self.validator, origin.snapshot, origin.candidate, name)
            task, reason = judged.task, judged.reason
        if task is not None:
            known.add(lines)
            taskdir.save(task, self.directory)
        step = Step.of(repository, 0, origin.candidate, task, reason)
        run.append(REFINED, step)
        return task


def _at_its_hardest(walk: Walk) -> bool:
    lowest = min(hint.rung for hint in walk.task.hints)
    return walk.verdict is Verdict.TOO_EASY and walk.steps[-1][0].task.rung == lowest


def _at_its_easiest(walk: Walk) -> bool:
    highest = max(hint.rung for hint in walk.task.hints)
    return walk.verdict is Verdict.TOO_HARD and walk.steps[-1][0].task.rung == highest
