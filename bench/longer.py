"""A longer climb: a run that was trained goes on, and is evaluated on held-out tasks on the way.

Goes on where it stopped; prints a row for each evaluated checkpoint and draws ``longer.png``.

    make learn && python -m bench.longer runs/learn/seed-0 --updates 24 --every 6
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import click
from matplotlib.figure import Figure

from bench.learn import tadpole
from tadpole.cli.main import explain
from tadpole.evals.intervals import Estimate
from tadpole.evals.policies import PolicyRole, policies
from tadpole.evals.scoreboard import Scoreboard
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.rundir import RunDir
from tadpole.trace import Attempt

EVALUATIONS = "eval"  # the table of attempts at held-out tasks


@dataclass(frozen=True)
class Point:
    """pass@1 on the held-out tasks after so many updates."""

    update: int
    found: Estimate


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option("--updates", default=24, show_default=True, help="The last update.")
@click.option(
    "--every", default=6, show_default=True, help="Updates from one evaluation to the next."
)
def main(run: Path, updates: int, every: int) -> None:
    """Train RUN on and evaluate it."""
    try:
        points = asyncio.run(_longer(run, updates, every))
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        sys.exit(explain(error))
    _figure(run, points)


async def _longer(run: Path, updates: int, every: int) -> list[Point]:
    rundir = RunDir.open(run)
    points = []
    before = policies(rundir)[PolicyRole.BEFORE]
    points.append(_told(Point(0, _known(rundir, before.fingerprint))))
    done = policies(rundir)[PolicyRole.AFTER].update if PolicyRole.AFTER in policies(rundir) else 0
    steps = [*range(done or every, updates, every), updates]
    for update in steps:
        words = ["--run", str(run)]
        await tadpole("train", *words, "--train.updates", str(update))
        await tadpole("eval", "run", "--policy", "after", *words)
        after = policies(rundir)[PolicyRole.AFTER]
        points.append(_told(Point(after.update, _known(rundir, after.fingerprint))))
    return points


def _known(rundir: RunDir, fingerprint: str) -> Estimate:
    board = Scoreboard.of(rundir.rows(EVALUATIONS, Attempt), fingerprint)
    assert board.pass_at_1 is not None
    return board.pass_at_1


def _told(point: Point) -> Point:
    found = point.found
    row = {"update": point.update, "pass_at_1": found.value, "interval": [found.low, found.high]}
    click.echo(json.dumps(row))
    return point


def _figure(run: Path, points: list[Point]) -> None:
    figure = Figure(figsize=(7.2, 3.2), layout="constrained", dpi=150)
    axes = figure.subplots()
    last = {row.update: row.mean_reward for row in RunDir.open(run).rows(TABLE, UpdateRow)}
    curve = {update: reward for update, reward in sorted(last.items()) if reward is not None}
    axes.plot(list(curve), list(curve.values()), lw=1.6, color="C0", label="mean reward, training")
    values = [point.found.value for point in points]
    below = [point.found.value - point.found.low for point in points]
    above = [point.found.high - point.found.value for point in points]
    axes.errorbar(
        [point.update for point in points], values, yerr=[below, above],
        fmt="o-", color="C1", capsize=3, lw=1.2, label="pass@1, held-out tasks",
    )  # fmt: skip
    axes.set(xlabel="update", ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(run / "longer.png")


if __name__ == "__main__":
    main()
