"""The stages of the main job, each resumable: make, calibrate, train, evaluate.

A stage reads what earlier stages left in the run directory, does what is still owed, and leaves
its own. :mod:`tadpole.demo` chains them; each verb runs one. The caller holds the run's lock.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tadpole.authoring import with_author
from tadpole.config import values
from tadpole.errors import RunError, UsageError
from tadpole.evals.evaluate import evaluate
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy, policies
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
from tadpole.leaf.identity import harness_identity
from tadpole.models.loading import weights_hash
from tadpole.pilot.calibrate import Calibrated, calibrate, fill_quota
from tadpole.pilot.diversity import Caps, Quota, dealt
from tadpole.pilot.make import make_tasks
from tadpole.pilot.proposers.mixed import chosen
from tadpole.pilot.split import Part, Place, Split, files_of, load_split, save_split, split
from tadpole.pilot.trial import Rules
from tadpole.prepared import Prepared, Trains, prepare_policy
from tadpole.reached import Served, reach_policy
from tadpole.rl.checkpoint import CheckpointState, checkpoints, read_state, save_checkpoint
from tadpole.rl.climb import Climb
from tadpole.rl.learner import Learner
from tadpole.rl.metrics import UpdateRow
from tadpole.rl.tracker import tracking
from tadpole.rl.warmup import warm_up
from tadpole.rollout import Rollout
from tadpole.settings import SERVED, TasksConfig
from tadpole.task import Task
from tadpole.timing import timed
from tadpole.trace import Attempt
from tadpole.validation import best_checkpoint, set_aside, validator

WARMUP = "warmup"  # directory of the warmed-up weights, in the run
_NOT_TRAINED = (
    "a model behind a server can be evaluated but not trained: give --model a Hugging Face "
    "directory or name, and leave warmup.enabled at auto"
)


async def make(job: Job, count: int | None = None) -> list[Task]:
    """Make the tasks (``count`` in all; None: as many as asked); those that are there are kept."""
    asked = job.config.tasks
    with timed(job.rundir, "make tasks"):
        return await make_tasks(
            asked.sources,
            count=asked.count if count is None else count,
            seed=asked.seed,
            store=job.workshop.store,
            engine=job.workshop.engine,
            grader=job.workshop.grader,
            out=job.task_directory,
            progress=job.progress,
            max_dictated_chars=asked.max_dictated_chars,
            proposer=await with_author(job, chosen(asked.weights, asked.max_dictated_chars)),
            rules=Rules(mutants=asked.mutants, min_kill_rate=asked.min_kill_rate),
            earlier=[Path(directory) for directory in asked.earlier],
            caps=caps(asked),
            closed=job.closed,
        )


def caps(asked: TasksConfig) -> Caps:
    """The caps of a round."""
    return Caps(
        repository=asked.max_repository,
        operator=asked.max_operator,
        kind=asked.max_kind,
        function=asked.max_per_function,
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
    state = CheckpointState(update=0, fingerprint="warmed-up")
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
    asked = job.config.calibrate
    with timed(job.rundir, "calibrate"), prepared_policy(job, PolicyRole.BEFORE) as start:
        rollout = _rollout(job, start)
        sampling = job.config.sampling.at(job.config.leaf.max_tokens_per_turn)

        async def attempt(task: Task, sample: int) -> Attempt:
            row, _ = await rollout.attempt(
                task, sample, sampling=sampling, stage="calibrate", seed=job.seed(0)
            )
            return row

        harness = harness_identity(job.config.leaf, sampling, start.dialogue.system)

        async def measured(tasks: Sequence[Task]) -> list[Calibrated]:
            return await calibrate(
                tasks,
                attempt=attempt,
                samples=asked.samples,
                band=asked.band,
                probe=asked.probe,
                start_rung=asked.start_rung,
                max_moves=asked.max_moves,
                concurrency=job.config.run.concurrency,
                policy=start.policy.fingerprint,
                harness=harness,
                budget=asked.budget,
                quota=Quota(asked.quota, caps(job.config.tasks)),
                rundir=job.rundir,
                progress=job.progress,
            )

        tasks = job.tasks()
        if asked.quota and not asked.budget:
            kept = await fill_quota(asked.quota, tasks, measured, lambda count: make(job, count))
        else:
            kept = await measured(dealt(tasks) if asked.quota else tasks)
    return _split(job, kept)


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
    note_policy(
        job.rundir,
        PolicyRow(
            role=PolicyRole.AFTER,
            fingerprint=weights_hash(checkpoint),
            update=read_state(checkpoint).update,
            warmed_up=job.warms_up,
            path=str(checkpoint.relative_to(job.rundir.path)),
        ),
    )
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
    asked = job.config.eval
    with timed(job.rundir, f"evaluate {role.value}"), prepared_policy(job, role) as prepared:
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


def _split(job: Job, kept: list[Calibrated]) -> Split:
    """Split by file and keep it."""
    by_name = {one.task.name: one for one in kept}
    asked = job.config.tasks
    tasks = [one.task for one in kept]
    if job.round > 1:  # what is held out is settled
        held_out = [task for task in tasks if job.closed & files_of([task])]
        training = [task for task in tasks if task not in held_out]
    else:
        training, held_out = split(tasks, asked.held_out_share, asked.seed)
    if not training or not (held_out or job.round > 1):
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
        for part, chosen in ((Part.TRAIN, training), (Part.HELD_OUT, held_out))
        for task in chosen
    ]
    found = Split(places=tuple(places))
    save_split(job.rundir, found)
    return found
