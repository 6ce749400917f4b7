"""The learning bar: does the trained policy solve more held-out tasks, and only by learning?

Three seeds of the whole loop on one set of tasks, and a control in which rewards are shuffled
within their groups. Passes where in each seed pass@1 rises by at least 20 points with intervals
that do not overlap, and the control stays within 5 points. Goes on where it stopped.

    python bench/learn.py --out runs/learn
"""

import asyncio
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from tadpole.cli.main import explain
from tadpole.cli.tables import outcomes
from tadpole.config import load, open_run
from tadpole.demo import demo
from tadpole.evals.intervals import Estimate
from tadpole.evals.scoreboard import Scoreboard
from tadpole.progress import Progress
from tadpole.rundir import RunDir

GAIN, CONTROL = 0.20, 0.05
# What the control has in common with the first seed: all that comes before training.
SHARED = ("warmup", "calibration.jsonl", "calibrated.jsonl", "split.json", "eval.jsonl")


@dataclass(frozen=True)
class Climbed:
    """One run: pass@1 where training started, and where it ended."""

    name: str
    before: Estimate
    after: Estimate

    @property
    def gain(self) -> float:
        """Points of pass@1, as a share."""
        return self.after.value - self.before.value

    @property
    def apart(self) -> bool:
        """Whether the intervals do not overlap."""
        return self.before.high < self.after.low


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/learn"))
@click.option("--preset", default="learn", help="Shipped settings.")
@click.option("--seeds", default=3, help="How many seeds.")
def main(out: Path, preset: str, seeds: int) -> None:
    """Run the seeds and the control; exit code 1 where the bar is missed."""
    try:
        runs = [_run(out, preset, f"seed-{seed}", seed=seed, extra={}) for seed in range(seeds)]
        shuffled = {"train.shuffle_rewards": True}
        control = _run(out, preset, "control", seed=0, extra=shuffled, like=out / "seed-0")
    except Exception as error:
        sys.exit(explain(error))
    for run in (*runs, control):
        click.echo(f"{run.name:<8} {run.before} -> {run.after}  {100 * run.gain:+.1f} points")
    passed = all(run.gain >= GAIN and run.apart for run in runs) and abs(control.gain) <= CONTROL
    click.echo("the learning bar holds" if passed else "the learning bar is missed")
    sys.exit(0 if passed else 1)


def _run(
    out: Path,
    preset: str,
    name: str,
    *,
    seed: int,
    extra: Mapping[str, object],
    like: Path | None = None,
) -> Climbed:
    tasks = str(out.absolute() / "tasks")
    flags = {"run.dir": str(out / name), "run.seed": seed, "tasks.dir": tasks, **extra}
    config = load(flags, preset=preset)
    run = open_run(config)
    if like is not None:
        _share(like, run)
    with run.lock():
        done = asyncio.run(demo(config, run, Progress()))
    click.echo(f"{name}\n{outcomes(done.boards)}\nreport: {done.report}\n")
    before, after = list(done.boards.values())[-2:]
    return Climbed(name, _known(before), _known(after))


def _share(source: Path, run: RunDir) -> None:
    for part in SHARED:
        target = run.path / part
        if not target.exists():
            beside = run.path / f".{part}"
            shutil.rmtree(beside, ignore_errors=True)
            copy = shutil.copytree if (source / part).is_dir() else shutil.copy2
            copy(source / part, beside)
            beside.rename(target)


def _known(board: Scoreboard) -> Estimate:
    found = board.pass_at_1
    assert found is not None
    return found


if __name__ == "__main__":
    main()
