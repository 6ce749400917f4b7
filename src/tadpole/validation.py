"""Validation: which checkpoint of a climb is the best, by tasks that it is not trained on.

Every checkpoint is evaluated as soon as it is made. The held-out tasks choose nothing.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tadpole.evals.evaluate import evaluate
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
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
