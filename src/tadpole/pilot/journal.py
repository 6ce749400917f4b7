"""The journal of task making: one row per candidate, in the order of proposal.

It lies as ``journal.jsonl`` in the directory of the tasks. A row is appended after the task it
names is on disk, so whatever a crash tears is simply owed again. Nothing in it depends on time:
what was spent lies beside it, in ``costs.jsonl``. :func:`yield_of` counts both.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.verdict import LAST_STAGE, DropReason, Stage
from tadpole.rundir import RunDir
from tadpole.task import Task, TaskKind
from tadpole.trace import Record

TABLE = "journal"
SETTINGS = "making"
COSTS = "costs"
REFINED = "refined"  # as the journal, of what refinement tried


class Making(Record):
    """What the journal of one source depends on: another value would give other candidates."""

    format: Literal[1] = 1
    source: str
    snapshot: str
    seed: int
    proposer: str
    max_dictated: int
    mutants: int = 0
    min_kill_rate: float = 0.7
    caps: str = ""  # the shares that are not those of no caps
    earlier: str = ""  # digest of the earlier tasks that nothing may be like
    name: str = ""  # with which the names of its tasks begin; empty: not written down


class Step(Record):
    """One candidate's way. Either ``reason`` or ``task`` is set."""

    format: Literal[1] = 1
    source: str
    index: int  # in the order of proposal of this source
    candidate: str
    operator: str
    path: str
    function: str
    reason: DropReason | None = None
    task: str = ""
    fail_to_pass: int = 0
    kind: TaskKind = TaskKind.BUG_FIX
    seconds: float = 0.0  # where there is no costs.jsonl

    @classmethod
    def of(
        cls,
        source: str,
        index: int,
        candidate: Candidate,
        task: Task | None,
        reason: DropReason | None,
    ) -> Self:
        """The row of a candidate that became a task, or of one that did not."""
        return cls(
            source=source,
            index=index,
            candidate=candidate.key,
            operator=candidate.operator,
            path=candidate.files[0],
            function=candidate.functions[0] if candidate.functions else "",
            reason=reason,
            task=task.name if task else "",
            fail_to_pass=len(task.fail_to_pass) if task else 0,
            kind=candidate.kind,
        )

    @property
    def stage(self) -> Stage:
        """How far it came."""
        return Stage.KEPT if self.reason is None else LAST_STAGE[self.reason]


class Cost(Record):
    """What was spent since the row before: by candidates that were judged ahead, too."""

    format: Literal[1] = 1
    source: str
    index: int  # of the candidate that was written down then
    seconds: float  # of validating it, as a clock counts them
    cpu_seconds: float
    detail: str = ""  # what the runs or the grader said, where that tells more than the reason


@dataclass(frozen=True)
class Yield:
    """How many candidates came how far, and why the others did not."""

    proposed: int
    reached: dict[Stage, int]  # at least that far
    reasons: dict[DropReason, int]
    operators: dict[str, tuple[int, int]]  # kept, proposed

    def __str__(self) -> str:
        lines = [f"{stage.value:<24}{count:>6}" for stage, count in self.reached.items()]
        lines += [f"  - {reason.value:<60}{count:>6}" for reason, count in self.reasons.items()]
        return "\n".join(lines)


def yield_of(out: Path, source: str | None = None) -> Yield:
    """The yield of a directory of tasks, of one source or of all."""
    steps = RunDir(out).rows(TABLE, Step)
    return count(step for step in steps if source in (None, step.source))


def count(steps: Iterable[Step]) -> Yield:
    """The yield of some rows."""
    rows = list(steps)
    order = list(Stage)
    far = Counter(order.index(step.stage) for step in rows)
    reasons = Counter(step.reason for step in rows if step.reason is not None)
    kept = Counter(step.operator for step in rows if step.reason is None)
    tried = Counter(step.operator for step in rows)
    return Yield(
        proposed=len(rows),
        reached={s: sum(n for at, n in far.items() if at >= i) for i, s in enumerate(order)},
        reasons=dict(reasons.most_common()),
        operators={name: (kept[name], tried[name]) for name in sorted(tried)},
    )
