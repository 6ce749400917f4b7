"""The learning bar: does the trained policy solve more held-out tasks, and only by learning?

One set of tasks, one calibration and one warm-up; from there three seeds of training, and a
control in which rewards are shuffled within their groups. Passes where in each seed pass@1 on
held-out tasks rises by at least 20 points over the warmed-up policy, with 95% intervals that do
not overlap, and the control stays within 5 points. Goes on where it stopped.

    python bench/learn.py --out runs/learn
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from matplotlib.figure import Figure

from tadpole import stages
from tadpole.cli.main import explain
from tadpole.config import Config, load, open_run
from tadpole.errors import TrainerError
from tadpole.evals.intervals import Estimate
from tadpole.evals.policies import PolicyRole
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
from tadpole.process import arun
from tadpole.progress import Progress
from tadpole.report.html import write_report
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.rundir import RunDir, cache_dir
from tadpole.taskset import make
from tadpole.workshop import Workshop

GAIN, CONTROL = 0.20, 0.05
# The control and what it is held against may differ by five points only: they get this many times
# the attempts of the seeds, so that chance alone does not move them apart by as much.
CAREFUL = 2
# What a climb takes over from the preparation: all that comes before training.
SHARED = (
    *("warmup", "policies.jsonl", "calibration.jsonl", "calibrated.jsonl", "split.json"),
    *("eval.jsonl", "traces", "patches"),
)


@dataclass(frozen=True)
class Climbed:
    """One climb: pass@1 on the held-out tasks where it ended."""

    name: str
    after: Estimate

    def gain(self, before: Estimate) -> float:
        """Points of pass@1, as a share."""
        return self.after.value - before.value

    def passes(self, before: Estimate) -> bool:
        """Whether the gain is large enough and the intervals do not overlap."""
        return self.gain(before) >= GAIN and before.high < self.after.low


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/learn"))
@click.option("--preset", default="learn", help="Shipped settings.")
@click.option("--seeds", default=3, help="How many seeds.")
@click.option("--at-once", default=2, help="Climbs at one time; each has one thread.")
def main(out: Path, preset: str, seeds: int, at_once: int) -> None:
    """Run the seeds and the control; exit code 1 where the bar is missed."""
    try:
        before, climbs = asyncio.run(_learn(out, preset, seeds, at_once))
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        sys.exit(explain(error))
    _figure(out, before, climbs)
    *runs, control = climbs
    click.echo(f"warmed up {before}")
    for run in climbs:
        click.echo(f"{run.name:<9} {run.after}  {100 * run.gain(before):+.1f} points")
    passed = all(run.passes(before) for run in runs) and abs(control.gain(before)) <= CONTROL
    (out / "result.json").write_text(
        json.dumps(
            {"before": asdict(before), "passed": passed} | {c.name: asdict(c.after) for c in climbs}
        )
    )
    click.echo("the learning bar holds" if passed else "the learning bar is missed")
    sys.exit(0 if passed else 1)


async def _learn(
    out: Path, preset: str, seeds: int, at_once: int
) -> tuple[Estimate, list[Climbed]]:
    tasks = str(out.absolute() / "tasks")
    progress = Progress()
    common = {"tasks.dir": tasks}
    careful = {"eval.samples": CAREFUL * load({}, preset=preset).eval.samples}
    config = load({**common, **careful, "run.dir": str(out / "base")}, preset=preset)
    with open_run(config) as base:
        before = await _prepare(
            Job(
                config,
                base,
                Workshop.open(cache_dir(), config.sandbox, config.grading.tier),
                progress,
            )
        )
    one_core = {**common, "policy.threads": 1}
    shuffled = {"train.shuffle_rewards": True, **careful}
    # The control first: it is the shortest, and leaves the places to the seeds.
    wanted = {
        "control": load({**one_core, **shuffled, "run.dir": str(out / "control")}, preset=preset)
    }
    for n in range(seeds):
        of_seed = {"run.dir": str(out / f"seed-{n}"), "run.seed": n}
        wanted[f"seed-{n}"] = load({**one_core, **of_seed}, preset=preset)
    places = asyncio.Semaphore(at_once)

    async def climb(name: str, config: Config) -> Climbed:
        async with places:
            return await _climb(name, config, base, progress)

    climbs = [climb(name, config) for name, config in wanted.items()]
    control, *runs = await asyncio.gather(*climbs)
    return _known(before), [*runs, control]


def _figure(out: Path, before: Estimate, climbs: list[Climbed]) -> None:
    """``learning.png``: mean reward by update, and pass@1 on held-out tasks."""
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=150)
    curve, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    for number, climb in enumerate(climbs):
        control = climb.name == "control"
        rows = RunDir.open(out / climb.name).rows(TABLE, UpdateRow)
        by_update = {row.update: row.mean_reward for row in rows if row.mean_reward is not None}
        style = {"color": "0.55", "ls": "--"} if control else {"color": f"C{number}"}
        label = "control (rewards shuffled)" if control else climb.name
        curve.plot(list(by_update), list(by_update.values()), label=label, lw=1.8, **style)
    curve.set(xlabel="update", ylabel="mean reward, training tasks", ylim=(0, 1))
    curve.legend(frameon=False, fontsize=8)
    shown = [("warmed up", before), *((climb.name, climb.after) for climb in climbs)]
    for place, (_, estimate) in enumerate(shown):
        error = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
        color = "0.55" if place in {0, len(shown) - 1} else f"C{place - 1}"
        bars.bar(place, estimate.value, color=color, width=0.65)
        bars.errorbar(place, estimate.value, yerr=error, color="0.2", capsize=3, lw=1)
    bars.set_xticks(range(len(shown)), [name for name, _ in shown], fontsize=8)
    bars.set(ylabel="pass@1, held-out tasks", ylim=(0, 1))
    for axes in (curve, bars):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out / "learning.png")


async def _prepare(job: Job) -> Scoreboard:
    await make(job)
    await stages.calibrate_tasks(job)
    board = await stages.evaluate_policy(job, PolicyRole.BEFORE)
    write_report(job.rundir)
    return board


async def _climb(name: str, config: Config, base: RunDir, progress: Progress) -> Climbed:
    """Train and evaluate in processes of their own; the figures are read from the run."""
    with open_run(config) as run:
        _share(base, run)
    with progress.task(f"train {name}", total=config.train.updates) as bar:
        watch = asyncio.create_task(_watch(run, bar.update))
        try:
            await tadpole("train", "--run", str(run.path))
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
    await tadpole("eval", "run", "--policy", "after", "--run", str(run.path))
    job = Job(
        config,
        run,
        Workshop.open(cache_dir(), config.sandbox, config.grading.tier),
        Progress(quiet=True),
    )
    board = await stages.evaluate_policy(job, PolicyRole.AFTER)  # all rows are there
    write_report(run)
    return Climbed(name, _known(board))


async def _watch(run: RunDir, show: object) -> None:
    assert callable(show)
    while True:
        rows = run.rows(TABLE, UpdateRow)
        if rows:
            last = rows[-1]
            show(done=last.update, note=f"mean reward {last.mean_reward or 0:.2f}")
        await asyncio.sleep(5)


async def tadpole(*words: str) -> None:
    """The command in a process of its own, with one thread. Raises TrainerError."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = await arun([Path(sys.executable).with_name("tadpole"), *words], env=env)
    if not done.ok:
        raise TrainerError(f"tadpole {' '.join(words)}: {done.last_line()}")


def _share(source: RunDir, run: RunDir) -> None:
    for part in SHARED:
        origin, target = source.path / part, run.path / part
        if origin.exists() and not target.exists():
            beside = run.path / f".{part}"
            shutil.rmtree(beside, ignore_errors=True)
            if origin.is_dir():
                shutil.copytree(origin, beside, copy_function=os.link)
            else:
                shutil.copy2(origin, beside)
            beside.rename(target)


def _known(board: Scoreboard) -> Estimate:
    found = board.pass_at_1
    assert found is not None
    return found


if __name__ == "__main__":
    main()
