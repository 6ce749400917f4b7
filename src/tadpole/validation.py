"""Validation: which checkpoint of a climb is the best, by tasks that it is not trained on.

Every checkpoint is evaluated as soon as it is made. The held-out tasks choose nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tadpole.evals.evaluate import TABLE as EVALUATION
from tadpole.evals.evaluate import evaluate
from tadpole.evals.intervals import mean_rate
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
from tadpole.models.location import weights_hash
from tadpole.pilot.split import Part
from tadpole.protocols import TrainedPolicy
from tadpole.rl.checkpoint import checkpoints, read_state
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.trace import Attempt

TABLE = "validation"


def validator(
    job: Job, policy: TrainedPolicy, rollout: Rollout
) -> Callable[[], Awaitable[str]] | None:
    """Evaluates the policy in force on the validation tasks; None where there are none.

    Its result is the fingerprint of the best checkpoint so far. Attempts that were made before
    are not made again.
    """
    tasks = job.part(Part.VALIDATION)
    if not tasks:
        return None

    async def validate() -> str:
        await attempts_at(
            tasks,
            job,
            rollout,
            policy=policy.fingerprint,
            stage=f"validate-{policy.version:04d}",
            what="validate",
            table=TABLE,
        )
        return read_state(best_checkpoint(job.rundir)).fingerprint

    return validate


async def attempts_at(
    tasks: Sequence[Task],
    job: Job,
    rollout: Rollout,
    *,
    policy: str,
    stage: str,
    what: str,
    table: str = EVALUATION,
) -> Scoreboard:
    """Evaluate the policy of fingerprint ``policy`` on ``tasks`` as the run's settings say."""
    asked = job.config.eval

    async def attempt(task: Task, sample: int) -> Attempt:
        row, _ = await rollout.attempt(
            task,
            sample,
            sampling=asked.at(job.config.leaf.max_tokens_per_turn),
            stage=stage,
            seed=job.seed(asked.seed),
        )
        return row

    return await evaluate(
        tasks,
        policy=policy,
        attempt=attempt,
        samples=asked.samples,
        rundir=job.rundir,
        progress=job.progress,
        concurrency=job.config.run.concurrency,
        retries=asked.retries,
        table=table,
        what=what,
    )


def best_checkpoint(rundir: RunDir) -> Path:
    """The checkpoint that did best on the validation tasks, of several the latest.

    The last one where nothing was validated.
    """
    made = checkpoints(rundir.path / "checkpoints")
    rates = {path: pass_at_1(rundir, read_state(path).fingerprint) for path in made}
    known = [(rate, path) for path, rate in rates.items() if rate is not None]
    return max(known)[1] if known else made[-1]


def note_trained(job: Job, checkpoint: Path) -> None:
    """Record ``checkpoint``, which lies in the run, as what the run's training came to."""
    row = PolicyRow(
        role=PolicyRole.AFTER,
        fingerprint=weights_hash(checkpoint),
        update=read_state(checkpoint).update,
        warmed_up=job.warms_up,
        path=str(checkpoint.relative_to(job.rundir.path)),
    )
    note_policy(job.rundir, row)


def pass_at_1(rundir: RunDir, fingerprint: str) -> float | None:
    """What a checkpoint came to on the validation tasks; None where it was not evaluated."""
    tallies = Scoreboard.of(rundir.rows(TABLE, Attempt), fingerprint).tallies
    return mean_rate(list(tallies.values())) if tallies else None
