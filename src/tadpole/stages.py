"""The stages of the main job on a policy, each resumable: calibrate, train, evaluate.

A stage reads what earlier stages left in the run directory, does what is still owed, and leaves
its own. :mod:`tadpole.taskset` makes the tasks before, :mod:`tadpole.demo` chains all;
each verb runs one. The caller holds the run's lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tadpole.config import values
from tadpole.errors import RunError, UsageError
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy, policies
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
from tadpole.leaf.identity import harness_identity
from tadpole.models.location import weights_hash
from tadpole.parts import assign, set_aside
from tadpole.pilot.split import Part, Split, load_split
from tadpole.prepared import Prepared, Trains, prepare_policy
from tadpole.reached import Served, reach_policy
from tadpole.rl.checkpoint import CheckpointState, checkpoints, read_state, save_checkpoint
from tadpole.rl.climb import Climb
from tadpole.rl.learner import Learner
from tadpole.rl.metrics import UpdateRow
from tadpole.rl.tracker import tracking
from tadpole.rl.warmup import warm_up
from tadpole.rollout import Rollout
from tadpole.settings import SERVED
from tadpole.task import Task
from tadpole.taskset import measure
from tadpole.timing import timed
from tadpole.trace import Attempt
from tadpole.validation import attempts_at, best_checkpoint, note_trained, validator

WARMUP = "warmup"  # directory of the warmed-up weights, in the run
_NOT_TRAINED = (
    "a model behind a server can be evaluated but not trained: give --model a Hugging Face "
    "directory or name, and leave warmup.enabled at auto"
)


async def start_policy(job: Job) -> None:
    """Settle where training starts: the model, warmed up where that is on and not done yet."""
    trains = Trains.WEIGHTS if job.warms_up else Trains.NOTHING
    with prepared_policy(job, PolicyRole.RAW, trains=trains) as raw:
        fingerprint = raw.policy.fingerprint
        note_policy(job.rundir, PolicyRow(role=PolicyRole.RAW, fingerprint=fingerprint))
        if job.warms_up and not checkpoints(job.rundir.path / WARMUP):
            with timed(job.rundir, "warm up"):
                await _warm_up(job, _trainable(raw))
    if job.warms_up:
        fingerprint = weights_hash(checkpoints(job.rundir.path / WARMUP)[-1])
    note_policy(
        job.rundir,
        PolicyRow(
            role=PolicyRole.BEFORE,
            fingerprint=fingerprint,
            warmed_up=job.warms_up,
            path=WARMUP if job.warms_up else "",
        ),
    )


async def _warm_up(job: Job, raw: Prepared) -> None:
    asked = job.config.warmup
    learner = Learner(
        raw.loaded.model,
        lr=asked.lr,
        weight_decay=0.0,
        dtype=raw.dtype,
        micro_batch_tokens=job.config.train.micro_batch_tokens,
    )
    with job.progress.task("warm up", total=asked.steps) as bar:
        await warm_up(
            learner,
            raw.dialogue,
            job.workshop.engine,
            steps=asked.steps,
            batch=asked.batch,
            seed=job.seed(asked.seed),
            progress=lambda done, loss: bar.update(done=done, note=f"loss {loss:.3f}"),
        )
    profile = job.config.leaf.profile
    state = CheckpointState(update=0, fingerprint="warmed-up", profile=profile)
    root = job.rundir.directory(WARMUP)
    save_checkpoint(root, raw.loaded.model, raw.loaded.tokenizer, None, state)


async def calibrate_tasks(job: Job) -> Split:
    """Find the learnable tasks by rollouts of the policy that training starts from.

    Raises UsageError where none is learnable.
    """
    found = load_split(job.rundir)
    if found is not None:
        return found
    await start_policy(job)
    with timed(job.rundir, "calibrate"), prepared_policy(job, PolicyRole.BEFORE) as start:
        rollout = _rollout(job, start)
        sampling = job.config.sampling.at(job.config.leaf.max_tokens_per_turn)

        async def attempt(task: Task, sample: int) -> Attempt:
            row, _ = await rollout.attempt(
                task, sample, sampling=sampling, stage="calibrate", seed=job.seed(0)
            )
            return row

        harness = harness_identity(job.config.leaf, sampling, start.dialogue.system)
        kept = await measure(job, attempt, start.policy.fingerprint, harness)
    return assign(job, kept)


async def train(job: Job) -> Path:
    """Climb on the training tasks of one round.

    Returns the directory of the best checkpoint where it validates, else of the last.
    """
    if job.config.policy.model.startswith(SERVED):
        raise UsageError(_NOT_TRAINED)  # before anybody is sent to calibrate for it
    if job.validates:
        set_aside(job)
    asked = job.config.train
    tasks, lag = job.part(Part.TRAIN), asked.max_lag
    trains = Trains.ADAPTERS if asked.lora.rank else Trains.WEIGHTS
    with (
        timed(job.rundir, "train"),
        prepared_policy(job, PolicyRole.BEFORE, apart=lag > 0, trains=trains) as start,
    ):
        checkpoint = await _climb(job, _trainable(start), tasks)
    if job.part(Part.VALIDATION):
        checkpoint = best_checkpoint(job.rundir)
    note_trained(job, checkpoint)
    return checkpoint


async def _climb(job: Job, start: Prepared, tasks: list[Task]) -> Path:
    asked = job.config.train
    learner = Learner(
        start.loaded.model,
        lr=asked.lr,
        betas=asked.betas,
        weight_decay=asked.weight_decay,
        grad_clip=asked.grad_clip,
        delta=asked.dppo_delta,
        temperature=job.config.sampling.temperature,
        dtype=start.dtype,
        micro_batch_tokens=asked.micro_batch_tokens,
        max_mean_gap=asked.max_mean_gap,
        max_dropped_share=asked.max_dropped_share,
        spike_norm=asked.spike_norm,
        checkpointing=asked.gradient_checkpointing,
    )
    rollout = _rollout(job, start)
    climb = Climb(
        rollout=rollout,
        policy=start.policy,
        learner=learner,
        tokenizer=start.loaded.tokenizer,
        rundir=job.rundir,
        settings=asked,
        sampling=job.config.sampling.at(job.config.leaf.max_tokens_per_turn),
        seed=job.seed(asked.seed),
        base=start.policy.fingerprint,
        validate=validator(job, start.policy, rollout),
        profile=job.config.leaf.profile,
        say=job.progress.say,
    )
    made = checkpoints(job.rundir.path / "checkpoints")
    done = read_state(made[-1]).update if made else 0
    with (
        job.progress.task("train", total=asked.updates, done=done) as bar,
        tracking(asked.tracker, job.rundir.path, values(job.config), done) as tell,
    ):

        def show(row: UpdateRow) -> None:
            reward = "none" if row.mean_reward is None else f"{row.mean_reward:.3f}"
            gap = "" if row.max_abs_pq is None else f", max |p - q| {row.max_abs_pq:.1e}"
            skipped = f", skipped: {row.skipped}" if row.skipped else ""
            tell(row)
            bar.update(done=row.update, note=f"mean reward {reward}{gap}{skipped}")

        return await climb.run(tasks, show)


async def evaluate_policy(job: Job, role: PolicyRole) -> Scoreboard:
    """Evaluate one policy of the run on the held-out tasks."""
    tasks = job.part(Part.HELD_OUT)
    with timed(job.rundir, f"evaluate {role.value}"), prepared_policy(job, role) as prepared:
        return await attempts_at(
            tasks,
            job,
            _rollout(job, prepared),
            policy=prepared.policy.fingerprint,
            stage=f"eval-{role.value}",
            what=f"evaluate {role.value}",
        )


@contextmanager
def prepared_policy(
    job: Job, which: PolicyRole, apart: bool = False, trains: Trains = Trains.NOTHING
) -> Iterator[Prepared | Served]:
    """A policy of the run. Raises RunError where the run does not have it yet.

    ``apart``: it will be sampled while its model is trained. ``trains``: what of it is trained.
    """
    weights: Path | None = None
    if which is PolicyRole.BEFORE and job.warms_up:
        made = checkpoints(job.rundir.path / WARMUP)
        if not made:
            raise RunError(f"{job.rundir.path} is not warmed up yet: run tadpole tasks calibrate")
        weights = made[-1]
    elif which is PolicyRole.AFTER:
        row = policies(job.rundir).get(which)
        if row is None:
            raise RunError(f"{job.rundir.path} has no trained policy: run tadpole train")
        weights = job.rundir.path / row.path
    prepared: Prepared | Served
    if weights is None and job.config.policy.model.startswith(SERVED):
        prepared = reach_policy(job.config)
    else:
        prepared = prepare_policy(
            job.config, job.workshop.cache, weights, apart, job.progress, trains=trains
        )
    try:
        yield prepared
    finally:
        prepared.close()


def _trainable(prepared: Prepared | Served) -> Prepared:
    if isinstance(prepared, Served):
        raise UsageError(_NOT_TRAINED)
    return prepared


def _rollout(job: Job, prepared: Prepared | Served) -> Rollout:
    return job.workshop.rollout(prepared.policy, prepared.dialogue, job.config, job.rundir)
