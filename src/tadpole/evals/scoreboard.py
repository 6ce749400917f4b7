"""The scoreboard: attempts split by outcome, and pass@1 with its interval.

Attempts that infrastructure broke are counted apart and never as zeros. An attempt that was
made again counts once, as what it came to.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tadpole.evals.intervals import Estimate, Tally, difference, pass_at_1, pass_at_k
from tadpole.outcome import OUTCOME_POLICY, Outcome
from tadpole.rundir import Key, attempt_key
from tadpole.trace import Attempt


@dataclass(frozen=True)
class Scoreboard:
    """Attempts of one policy at some tasks."""

    policy: str
    tallies: Mapping[str, Tally]  # by task id, trusted attempts only
    outcomes: Mapping[Outcome, int]
    untrusted: int  # attempts of which nothing is known
    broken_tries: int  # tries that infrastructure broke, made again or not

    @classmethod
    def of(cls, attempts: Iterable[Attempt], policy: str | None = None) -> "Scoreboard":
        """Count the attempts of ``policy`` (None: of all, which should be one)."""
        rows = [row for row in attempts if policy is None or row.policy == policy]
        kept = settled(rows)
        outcomes = Counter(row.outcome for row in kept)
        untrusted = sum(n for o, n in outcomes.items() if not OUTCOME_POLICY[o].trust)
        passes: Counter[str] = Counter()
        trials: Counter[str] = Counter()
        for row in kept:
            if OUTCOME_POLICY[row.outcome].trust:
                trials[row.task] += 1
                passes[row.task] += row.outcome is Outcome.RESOLVED
        return cls(
            policy=policy or (rows[0].policy if rows else ""),
            tallies={task: Tally(passes[task], trials[task]) for task in sorted(trials)},
            outcomes={outcome: outcomes[outcome] for outcome in Outcome},
            untrusted=untrusted,
            broken_tries=sum(not OUTCOME_POLICY[row.outcome].trust for row in rows),
        )

    @property
    def attempts(self) -> int:
        """Trusted attempts."""
        return sum(tally.trials for tally in self.tallies.values())

    @property
    def pass_at_1(self) -> Estimate | None:
        """With a 95% interval over tasks; None where nothing is known."""
        return pass_at_1(list(self.tallies.values()))

    def pass_at_k(self, k: int) -> float | None:
        """The unbiased estimate over the tasks with at least ``k`` trusted attempts."""
        return pass_at_k(list(self.tallies.values()), k)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        estimate = self.pass_at_1
        return {
            "policy": self.policy,
            "tasks": len(self.tallies),
            "attempts": self.attempts,
            "untrusted": self.untrusted,
            "broken_tries": self.broken_tries,
            "pass_at_1": estimate.value if estimate else None,
            "interval": [estimate.low, estimate.high] if estimate else None,
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
        }


def settled(attempts: Iterable[Attempt]) -> list[Attempt]:
    """One row per attempt: the first that can be trusted, else the last."""
    kept: dict[Key, Attempt] = {}
    for row in attempts:
        before = kept.get(attempt_key(row))
        if before is None or not OUTCOME_POLICY[before.outcome].trust:
            kept[attempt_key(row)] = row
    return list(kept.values())


def compare(before: Scoreboard, after: Scoreboard) -> Estimate | None:
    """Difference of pass@1 on the tasks that both tried, paired; None where there is none."""
    both = sorted(before.tallies.keys() & after.tallies.keys())
    return difference([before.tallies[t] for t in both], [after.tallies[t] for t in both])
