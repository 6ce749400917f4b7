"""Rounds: tasks are made and calibrated on the policy as it is, then it climbs on them.

Round 1 is the run itself. Every later round is a run directory of its own, ``rounds/2``..., whose
model is the checkpoint that the round before ended with: all that can be asked of a run can be
asked of a round. Optimizer and random streams begin anew in each. Tasks that are held out are
those of round 1, and no later round has a task that edits a file of theirs, or one that is nearly
the same as a task of a round before.

``rounds.jsonl`` has a row for each round that was climbed to its end. A round is not gone on with
once a later one has begun.
"""

from pathlib import Path
from typing import Any, Literal

from tadpole import stages
from tadpole.config import Config
from tadpole.engines.cluster import Trainer
from tadpole.job import Job
from tadpole.pilot.split import Part, files_of, load_split
from tadpole.rl.checkpoint import read_state
from tadpole.rundir import MARKER, RunDir
from tadpole.settings import Switch
from tadpole.taskset import make
from tadpole.trace import Record
from tadpole.validation import note_trained, pass_at_1

TABLE = "rounds"
STRIDE = 1000  # between the seeds of two rounds


class RoundRow(Record):
    """One round that was climbed to its end, and what goes on from it."""

    format: Literal[1] = 1
    round: int
    training: int  # tasks
    validation: int
    update: int  # of the checkpoint that goes on
    validated: float | None  # its pass@1 on the validation tasks; None: it is just the last
    path: str  # of it, relative to the run directory


async def train(job: Job) -> Path:
    """Climb through all rounds; the directory of the weights that come out."""
    rows = {row.round: row for row in job.rundir.rows(TABLE, RoundRow)}
    at = job
    while True:
        best = await _round(job, at, rows.get(at.round))
        if at.round >= job.config.train.rounds:
            return best
        at = enter(job, at.round + 1, best)


async def _round(job: Job, at: Job, known: RoundRow | None) -> Path:
    """Climb round ``at`` of ``job`` to its end; the checkpoint that goes on."""
    run = job.rundir
    if known is not None and len(run.rounds()) > at.round:
        return run.path / known.path
    if at.round > 1:
        job.progress.say(f"round {at.round} of {job.config.train.rounds}")
        if not at.config.tasks.dir:
            await make(at)
        await stages.calibrate_tasks(at)
    best = await _climb(at)
    found = load_split(at.rundir)
    if not at.validates or found is None:
        return best
    state = read_state(best)
    row = RoundRow(
        round=at.round,
        training=found.count(Part.TRAIN),
        validation=found.count(Part.VALIDATION),
        update=state.update,
        validated=pass_at_1(at.rundir, state.fingerprint),
        path=str(best.relative_to(run.path)),
    )
    if row != known:
        run.append(TABLE, row)
    note_trained(job, best)
    return best


async def _climb(at: Job) -> Path:
    if at.config.cluster.trainer is Trainer.VERL:
        from tadpole.engines.verl.stage import train as on_verl

        return await on_verl(at)
    return await stages.train(at)


def enter(job: Job, number: int, start: Path) -> Job:
    """The job of a later round, which begins with the weights in ``start``."""
    path = job.rundir.round(number)
    config = configured(job.config, number, path, start)
    begun = (path / MARKER).exists()
    rundir = RunDir.open(path) if begun else RunDir.create(path, config)
    rundir.save_config(config)
    return Job(
        config=config,
        rundir=rundir,
        workshop=job.workshop,
        progress=job.progress,
        round=number,
        closed=files_of(job.part(Part.HELD_OUT)),
    )


def configured(config: Config, number: int, path: Path, start: Path) -> Config:
    """The settings of a later round: those of the run, from other weights and with other seeds.

    Nothing like the tasks of earlier rounds is made again.
    """
    train = config.train
    shaped = 0 < train.length_from_round <= number
    changed: dict[str, dict[str, Any]] = {
        "run": {"dir": str(path), "seed": config.run.seed + STRIDE * (number - 1)},
        "policy": {
            "model": str(start),
            "engine_dir": config.policy.engine_dir or str(Path(config.run.dir) / "engine"),
        },
        "warmup": {"enabled": Switch.OFF},
        "tasks": {
            "seed": config.tasks.seed + STRIDE * (number - 1),
            "earlier": (*config.tasks.earlier, *_made_before(config, number, path)),
        },
        "train": {
            "rounds": 1,
            "length_from_round": 0,
            "length_from_update": 1 if shaped else train.length_from_update,
        },
    }
    return config.model_copy(
        update={
            section: getattr(config, section).model_copy(update=values)
            for section, values in changed.items()
        }
    )


def _made_before(config: Config, number: int, path: Path) -> list[str]:
    """The task directories of the rounds before; none where all share a given one."""
    if config.tasks.dir:
        return []
    places = [Path(config.run.dir), *(path.parent / str(before) for before in range(2, number))]
    return [str(place / "tasks") for place in places]
