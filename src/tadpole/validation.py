"""Validation: which checkpoint of a climb is the best, by tasks that it is not trained on.

These tasks are cut from the training part of a round, by file, before it climbs. They are apart
from the held-out ones, which choose nothing.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tadpole.errors import UsageError
from tadpole.evals.evaluate import evaluate
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
from tadpole.pilot.split import Part, Split, load_split, save_split, split
from tadpole.protocols import TrainedPolicy
from tadpole.rl.checkpoint import checkpoints, read_state
from tadpole.rl.metrics import ROLLOUTS
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.trace import Attempt

TABLE = "validation"


def set_aside(job: Job) -> None:
    """Cut the validation tasks from the training part, unless it was trained on already.

    Raises RunError before calibration, and UsageError where too few files were edited to validate
    on some and train on others.
    """
    share, training = job.config.tasks.validation_share, job.part(Part.TRAIN)
    found = load_split(job.rundir)
    begun = job.rundir.table(ROLLOUTS).exists()
    if found is None or not share or begun or found.count(Part.VALIDATION):
        return
    of_these = min(1.0, share * len(found.places) / max(1, len(training)))
    rest, chosen = split(training, of_these, job.config.tasks.seed)
    if not rest or not chosen:
        raise UsageError(
            f"{len(training)} training tasks are too few to choose checkpoints by some of them: "
            "make more (--tasks.count), or say --tasks.validation_share 0, and each round goes on "
            "from the last checkpoint"
        )
    names = {task.name for task in chosen}
    places = [
        place.model_copy(update={"part": Part.VALIDATION}) if place.name in names else place
        for place in found.places
    ]
    save_split(job.rundir, Split(places=tuple(places)))


def validator(
    job: Job, policy: TrainedPolicy, rollout: Rollout
) -> Callable[[], Awaitable[str]] | None:
    """Evaluates the policy in force on the validation tasks; None where there are none.

    Its result is the fingerprint of the best checkpoint so far. Attempts that were made before
    are not made again.
    """
    tasks, asked = job.part(Part.VALIDATION), job.config.eval
    if not tasks:
        return None

    async def attempt(task: Task, sample: int) -> Attempt:
        row, _ = await rollout.attempt(
            task,
            sample,
            sampling=asked.at(job.config.leaf.max_tokens_per_turn),
            stage=f"validate-{policy.version:04d}",
            seed=job.seed(asked.seed),
        )
        return row

    async def validate() -> str:
        await evaluate(
            tasks,
            policy=policy.fingerprint,
            attempt=attempt,
            samples=asked.samples,
            rundir=job.rundir,
            progress=job.progress,
            concurrency=job.config.run.concurrency,
            retries=asked.retries,
            table=TABLE,
            what="validate",
        )
        return read_state(best_checkpoint(job.rundir)).fingerprint

    return validate


def best_checkpoint(rundir: RunDir) -> Path:
    """The checkpoint that did best on the validation tasks, of several the latest.

    The last one where nothing was validated.
    """
    made = checkpoints(rundir.path / "checkpoints")
    rates = {path: pass_at_1(rundir, read_state(path).fingerprint) for path in made}
    known = [(rate, path) for path, rate in rates.items() if rate is not None]
    return max(known)[1] if known else made[-1]


def pass_at_1(rundir: RunDir, fingerprint: str) -> float | None:
    """What a checkpoint came to on the validation tasks; None where it was not evaluated."""
    found = Scoreboard.of(rundir.rows(TABLE, Attempt), fingerprint).pass_at_1
    return found.value if found else None
