"""A run of several rounds as one story: each round is a run directory whose numbers begin anew."""

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from tadpole.config import Config
from tadpole.evals.policies import TABLE as POLICIES
from tadpole.evals.policies import PolicyRole, PolicyRow
from tadpole.rl import metrics
from tadpole.rl.metrics import UpdateRow
from tadpole.rundir import ROUNDS, RunDir
from tadpole.timing import TABLE as STAGES
from tadpole.timing import StageRow


@dataclass(frozen=True)
class Updates:
    """The updates of all rounds, numbered through."""

    rows: list[UpdateRow]
    starts: list[int]  # number of the first update of each round after the first
    planned: int  # those to come included

    def round_of(self, update: int) -> int:
        """The round that an update belongs to."""
        return bisect(self.starts, update) + 1


def updates_of(run: RunDir, config: Config) -> Updates:
    """Those of all rounds.

    A resumed climb repeats the updates after its last checkpoint: the later row holds.
    """
    rows: list[UpdateRow] = []
    starts: list[int] = []
    done = 0  # updates of rounds that are not gone on with
    for one in run.rounds():
        if one.path != run.path:
            done = len(rows)
            starts.append(done + 1)
        last = {row.update: row for row in one.rows(metrics.TABLE, UpdateRow)}
        rows += [
            row.model_copy(update={"update": done + number})
            for number, (_, row) in enumerate(sorted(last.items()), start=1)
        ]
    to_come = max(1, config.train.rounds - len(starts))
    return Updates(rows, starts, done + to_come * config.train.updates)


def stages_of(run: RunDir) -> list[StageRow]:
    """The stages of all rounds, those of later ones by name."""
    found = run.rows(STAGES, StageRow)
    for number, one in enumerate(run.rounds()[1:], start=2):
        found += [
            row.model_copy(update={"stage": f"round {number}: {row.stage}"})
            for row in one.rows(STAGES, StageRow)
        ]
    return found


def all_updates(run: RunDir, roles: Mapping[PolicyRole, PolicyRow]) -> dict[PolicyRole, PolicyRow]:
    """The policies, the trained one with the updates of all rounds that led to it.

    Each round goes on from the checkpoint that the one before chose, which need not be its last.
    """
    found = dict(roles)
    after = found.get(PolicyRole.AFTER)
    if after is not None and after.path.startswith(f"{ROUNDS}/"):
        number = int(after.path.split("/")[1])
        before = sum(_chosen(one) for one in run.rounds()[: number - 1])
        found[PolicyRole.AFTER] = after.model_copy(update={"update": before + after.update})
    return found


def _chosen(run: RunDir) -> int:
    """The update of the checkpoint that one round, by itself, came to."""
    rows = run.rows(POLICIES, PolicyRow)
    own = [
        row.update
        for row in rows
        if row.role is PolicyRole.AFTER and not row.path.startswith(f"{ROUNDS}/")
    ]
    return own[-1] if own else 0
