"""What a round brought: how many candidates came how far, why the others did not, and the cost.

Read from what the stages left: the journal and the costs of task making, the attempts and
verdicts of calibration, and the split. What was not done yet is None, not 0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tadpole.config import saved
from tadpole.errors import UsageError
from tadpole.outcome import OUTCOME_POLICY
from tadpole.pilot.decision import Verdict
from tadpole.pilot.journal import COSTS, REFINED, TABLE, Cost, Step
from tadpole.pilot.split import Split, load_split
from tadpole.pilot.unread import left_out
from tadpole.pilot.verdict import DropReason, Stage
from tadpole.pilot.walk import TABLE as ATTEMPTS
from tadpole.pilot.walk import VERDICTS, Measured
from tadpole.rundir import CONFIG, MARKER, RunDir
from tadpole.trace import Attempt


class Mark(StrEnum):
    """How far a candidate came."""

    PROPOSED = "proposed"
    SCREENED = "screened"  # tests notice it
    CONFIRMED = "confirmed"  # every time, and for the right reason
    GATED = "gated"  # by the very grader
    MADE = "made"  # strong tests, like no other, within the caps
    CALIBRATED = "calibrated"  # the policy sometimes solves it
    KEPT = "kept"  # in the round


_OF_MAKING = dict(
    zip(Stage, (Mark.PROPOSED, Mark.SCREENED, Mark.CONFIRMED, Mark.GATED, Mark.MADE), strict=True)
)
_LATER = (Mark.CALIBRATED, Mark.KEPT)
NOT_MEASURED = "not measured"
Counts = dict[Mark, int | None]


@dataclass(frozen=True)
class Harvest:
    """The yield of a round."""

    counts: Counts
    groups: dict[str, dict[str, Counts]]  # "repository", "kind", "operator" -> value -> counts
    reasons: dict[str, int]  # why a candidate or a task was dropped, most often first
    cpu_seconds: float | None  # of making; None where it was not recorded
    rollouts: int | None  # attempts that count; None before calibration
    broken: int  # attempts that infrastructure broke
    unread: dict[str, str] = field(default_factory=dict)  # sources that were left out, and why

    @property
    def final(self) -> int:
        """Tasks at the last mark that was reached: kept ones, or made ones before calibration."""
        kept = self.counts[Mark.KEPT]
        return (self.counts[Mark.MADE] or 0) if kept is None else kept

    def each(self, amount: float | None) -> float | None:
        """What an amount comes to for each of these tasks."""
        return None if amount is None or not self.final else amount / self.final

    def body(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "counts": {mark.value: count for mark, count in self.counts.items()},
            "groups": {
                group: {
                    name: {mark.value: count for mark, count in counts.items()}
                    for name, counts in rows.items()
                }
                for group, rows in self.groups.items()
            },
            "reasons": self.reasons,
            "cpu_seconds": self.cpu_seconds,
            "cpu_seconds_each": self.each(self.cpu_seconds),
            "rollouts": self.rollouts,
            "rollouts_each": self.each(self.rollouts),
            "broken_rollouts": self.broken,
            "unread": self.unread,
        }

    def __str__(self) -> str:
        wide = max([12, *(len(name) + 2 for rows in self.groups.values() for name in rows)])
        lines = [" " * wide + "".join(f"{mark.value:>11}" for mark in Mark)]
        lines.append(_line("all", self.counts, wide))
        for group, rows in self.groups.items():
            lines.append(group)
            lines += [_line(f"  {name}", counts, wide) for name, counts in rows.items()]
        if self.reasons:
            lines.append("dropped because")
        lines += [f"{count:>8}  {reason}" for reason, count in self.reasons.items()]
        what = "made" if self.counts[Mark.KEPT] is None else "kept"
        for name, amount in (("CPU seconds", self.cpu_seconds), ("rollouts", self.rollouts)):
            each = self.each(amount)
            share = "" if each is None else f", {each:.1f} a task {what}"
            lines.append(f"{name}: {'not known' if amount is None else f'{amount:.0f}'}{share}")
        if self.broken:
            lines.append(f"rollouts that infrastructure broke: {self.broken}")
        lines += [f"left out {source}: {reason}" for source, reason in self.unread.items()]
        return "\n".join(lines)


def harvest(path: Path) -> Harvest:
    """The yield of a run, or of a directory of tasks.

    Raises UsageError where no task was made there, RunError where rows cannot be read.
    """
    run = RunDir.open(path) if (path / MARKER).exists() else None
    directory = path
    among: tuple[str, ...] | None = None
    if run is not None:
        asked = saved(run.path / CONFIG).tasks
        directory, among = Path(asked.dir or run.path / "tasks"), asked.sources
    steps = RunDir(directory).rows(TABLE, Step)
    if not steps:
        raise UsageError(
            f"{directory} holds no journal of task making: name a run, or a directory that "
            "`tadpole tasks make` has filled"
        )
    steps += RunDir(directory).rows(REFINED, Step)
    costs = RunDir(directory).rows(COSTS, Cost)
    attempts = run.rows(ATTEMPTS, Attempt) if run else []
    verdicts = {row.name: row for row in (run.rows(VERDICTS, Measured) if run else [])}
    split = load_split(run) if run else None
    tally = _Tally(steps, verdicts, split)
    trusted = sum(OUTCOME_POLICY[row.outcome].trust for row in attempts)
    return Harvest(
        counts=tally.counts(steps),
        groups={
            "repository": tally.groups(lambda step: step.source),
            "kind": tally.groups(lambda step: step.kind.value.replace("_", " ")),
            "operator": tally.groups(lambda step: step.operator),
        },
        reasons=tally.reasons(),
        cpu_seconds=sum(cost.cpu_seconds for cost in costs) if costs else None,
        rollouts=trusted if verdicts else None,
        broken=len(attempts) - trusted,
        unread={row.source: row.reason for row in left_out(directory, among)},
    )


@dataclass(frozen=True)
class _Tally:
    steps: Sequence[Step]
    verdicts: dict[str, Measured]  # the last of each task, by name
    split: Split | None

    def counts(self, steps: Iterable[Step]) -> Counts:
        """At least that far."""
        marks = list(Mark)
        far = Counter(marks.index(self._far(step)) for step in steps)
        found: Counts = {m: sum(n for at, n in far.items() if at >= i) for i, m in enumerate(marks)}
        if not self.verdicts:
            found[Mark.CALIBRATED] = None
        if self.split is None:
            found[Mark.KEPT] = None
        return found

    def groups(self, of: Callable[[Step], str]) -> dict[str, Counts]:
        """By something that a step has, the most fruitful first."""
        names = {of(step) for step in self.steps}
        rows = {name: self.counts(s for s in self.steps if of(s) == name) for name in names}
        last = [mark for mark in Mark if any(counts[mark] for counts in rows.values())][-1]
        return dict(sorted(rows.items(), key=lambda row: (-(row[1][last] or 0), row[0])))

    def reasons(self) -> dict[str, int]:
        """Why the others were dropped, in making and in calibration."""
        found = Counter(step.reason.value for step in self.steps if step.reason is not None)
        for step in self.steps if self.verdicts else ():
            if step.task and self._far(step) is not Mark.KEPT:
                found[self._after(step.task)] += 1
        return dict(found.most_common())

    def _far(self, step: Step) -> Mark:
        if not step.task:
            return _OF_MAKING[step.stage]
        if self.split is not None and self.split.find(step.task) is not None:
            return Mark.KEPT
        row = self.verdicts.get(step.task)
        return Mark.CALIBRATED if row is not None and row.kept else Mark.MADE

    def _after(self, name: str) -> str:
        row = self.verdicts.get(name)
        if row is None:
            return NOT_MEASURED
        if row.kept:
            return DropReason.CAPPED.value if self.split else "not split yet"
        return (row.verdict or Verdict.OPEN).value


def _line(name: str, counts: Counts, wide: int) -> str:
    told = "".join(f"{'-' if counts[mark] is None else counts[mark]:>11}" for mark in Mark)
    return f"{name:<{wide}}{told}"
