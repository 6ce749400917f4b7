"""The stages of the main job, each resumable: make, calibrate, train, evaluate.

A stage reads what earlier stages left in the run directory, does what is still owed, and leaves
its own. :mod:`tadpole.demo` chains them; each verb runs one. The caller holds the run's lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tadpole.errors import RunError, UsageError
from tadpole.evals.evaluate import evaluate
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy, policies
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
from tadpole.models.prepare import Prepared, prepare_policy
from tadpole.pilot.calibrate import Calibrated, calibrate, split
from tadpole.pilot.make import make_tasks
from tadpole.rl.climb import climb, warm_up_policy
from tadpole.rollout import Rollout
from tadpole.split import Part, Place, Split, load_split, save_split
from tadpole.stage import stage
from tadpole.task import Task
from tadpole.trace import Attempt

WARMUP = "warmup"  # directory of the warmed-up weights, in the run
CHECKPOINTS = "checkpoints"


async def make(job: Job) -> list[Task]:
    """Make the tasks; those that are there already are kept."""
    asked = job.config.tasks
    with stage(job.rundir, "make tasks"):
        return await make_tasks(
            asked.sources,
            count=asked.count,
            seed=asked.seed,
            store=job.workshop.store,
            engine=job.workshop.engine,
            grader=job.workshop.grader,
            out=job.task_directory,
            progress=job.progress,
            max_dictated_chars=asked.max_dictated_chars,
        )


async def warm_up(job: Job) -> None:
    """Warm the policy up, where that is on and not done; records where training starts."""
    with _prepared(job, PolicyRole.RAW) as raw:
        note_policy(job.rundir, PolicyRow(role=PolicyRole.RAW, fingerprint=raw.policy.fingerprint))
        weights = job.rundir.path / WARMUP
        if job.warms_up and not weights.exists():
            with stage(job.rundir, "warm up"):
                await warm_up_policy(job, raw, weights)
    with _prepared(job, PolicyRole.BEFORE) as start:
        note_policy(
            job.rundir,
            PolicyRow(
                role=PolicyRole.BEFORE,
                fingerprint=start.policy.fingerprint,
                warmed_up=job.warms_up,
                path=WARMUP if job.warms_up else "",
            ),
        )


async def calibrate_tasks(job: Job) -> Split:
    """Find the learnable tasks by rollouts of the policy that training starts from.

    Raises UsageError where none is learnable.
    """
    found = load_split(job.rundir)
    if found is not None:
        return found
    await warm_up(job)
    asked = job.config.calibrate
    with stage(job.rundir, "calibrate"), _prepared(job, PolicyRole.BEFORE) as start:
        rollout = _rollout(job, start)

        async def attempt(task: Task, sample: int) -> Attempt:
            row, _ = await rollout.attempt(
                task,
                sample,
                sampling=job.config.sampling.at(job.config.leaf.max_tokens_per_turn),
                stage="calibrate",
                seed=job.seed(0),
            )
            return row

        kept = await calibrate(
            job.tasks(),
            attempt=attempt,
            samples=asked.samples,
            band=asked.band,
            rundir=job.rundir,
            progress=job.progress,
        )
    return _split(job, kept)


async def train(job: Job) -> Path:
    """Climb on the training tasks; returns the directory of the last checkpoint."""
    tasks = job.part(Part.TRAIN)
    with stage(job.rundir, "train"), _prepared(job, PolicyRole.BEFORE) as start:
        checkpoint, update = await climb(job, start, tasks, _rollout(job, start))
    with _prepared(job, checkpoint) as after:
        note_policy(
            job.rundir,
            PolicyRow(
                role=PolicyRole.AFTER,
                fingerprint=after.policy.fingerprint,
                update=update,
                warmed_up=job.warms_up,
                path=str(checkpoint.relative_to(job.rundir.path)),
            ),
        )
    return checkpoint


async def evaluate_policy(job: Job, role: PolicyRole) -> Scoreboard:
    """Evaluate one policy of the run on the held-out tasks."""
    tasks = job.part(Part.HELD_OUT)
    asked = job.config.eval
    with stage(job.rundir, f"evaluate {role.value}"), _prepared(job, role) as prepared:
        rollout = _rollout(job, prepared)

        async def attempt(task: Task, sample: int) -> Attempt:
            row, _ = await rollout.attempt(
                task,
                sample,
                sampling=asked.at(job.config.leaf.max_tokens_per_turn),
                stage=f"eval-{role.value}",
                seed=job.seed(asked.seed),
            )
            return row

        return await evaluate(
            tasks,
            policy=prepared.policy.fingerprint,
            attempt=attempt,
            samples=asked.samples,
            rundir=job.rundir,
            progress=job.progress,
            concurrency=job.config.run.concurrency,
            retries=asked.retries,
            what=f"evaluate {role.value}",
        )


@contextmanager
def _prepared(job: Job, which: PolicyRole | Path) -> Iterator[Prepared]:
    """A policy of the run in memory. Raises RunError where the run does not have it yet."""
    weights: Path | None = None
    if isinstance(which, Path):
        weights = which
    elif which is PolicyRole.BEFORE and job.warms_up:
        weights = job.rundir.path / WARMUP
    elif which is PolicyRole.AFTER:
        row = policies(job.rundir).get(which)
        if row is None:
            raise RunError(f"{job.rundir.path} has no trained policy: run tadpole train")
        weights = job.rundir.path / row.path
    prepared = prepare_policy(job.config, job.workshop.cache, weights)
    try:
        yield prepared
    finally:
        prepared.close()


def _rollout(job: Job, prepared: Prepared) -> Rollout:
    return Rollout(
        engine=job.workshop.engine,
        store=job.workshop.store,
        grader=job.workshop.grader,
        policy=prepared.policy,
        dialogue=prepared.dialogue,
        settings=job.leaf,
        rundir=job.rundir,
        concurrency=job.config.run.concurrency,
        truncated_reward=job.config.train.truncated_reward,
    )


def _split(job: Job, kept: list[Calibrated]) -> Split:
    """Split by file and keep it."""
    by_name = {one.task.name: one for one in kept}
    asked = job.config.tasks
    training, held_out = split([one.task for one in kept], asked.held_out_share, asked.seed)
    if not training or not held_out:
        raise UsageError(
            f"{len(kept)} of {len(job.tasks())} tasks are learnable, too few to train on some and "
            "hold others out: make more (--tasks.count), or widen calibrate.low and calibrate.high"
        )
    places = [
        Place(
            name=task.name,
            id=task.id,
            rung=task.rung,
            part=part,
            passes=by_name[task.name].passes,
            valid=by_name[task.name].valid,
        )
        for part, tasks in ((Part.TRAIN, training), (Part.HELD_OUT, held_out))
        for task in tasks
    ]
    found = Split(places=tuple(places))
    save_split(job.rundir, found)
    return found
