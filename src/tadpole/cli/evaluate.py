"""``tadpole eval``: a policy on the held-out tasks of a run."""

import asyncio
import json
import os
from pathlib import Path

import click

from tadpole.cli.verb import Request, Verb, settings
from tadpole.outcome import Tier
from tadpole.progress import Progress
from tadpole.rundir import CONFIG, RunDir, cache_dir


@click.group(name="eval")
def command() -> None:
    """Evaluate a policy on the held-out tasks of a run."""


@command.command(cls=Verb, sections=["eval", "grading", "policy", "leaf"])
@click.option(
    "--policy",
    type=click.Choice(["raw", "before", "after"]),
    default="after",
    show_default=True,
    help="The model as it came, before training (warmed up where that is on), or trained.",
)
@settings
def run(request: Request, policy: str) -> int:
    """Evaluate; attempts that the run already has are not made again.

    Exit code 1 where infrastructure broke attempts that are still owed.
    """
    from tadpole.cli.tables import outcomes
    from tadpole.evals.policies import PolicyRole

    with request.job() as job:
        from tadpole.stages import evaluate_policy

        board = asyncio.run(evaluate_policy(job, PolicyRole(policy)))
    request.result(board.as_dict(), lambda: outcomes({policy: board}))
    return int(board.untrusted > 0)


@command.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--tier", type=click.Choice(["1", "3"]), help="How to grade; default: as the run was graded."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def regrade(run: Path, tier: str | None, as_json: bool) -> int:
    """Grade every stored patch of RUN again, without a model, and say which rewards changed.

    Goes on where it stopped; the rows of RUN stay as they are. Exit code 1 where some could not
    be graded.
    """
    rundir = RunDir.open(run)
    from tadpole.config import saved
    from tadpole.evals.regrade import regrade_run
    from tadpole.job import Job
    from tadpole.workshop import Workshop

    config = saved(rundir.path / CONFIG)
    asked = config.grading.tier if tier is None else Tier(int(tier))
    with rundir.lock():
        workshop = Workshop.open(cache_dir(), config.sandbox, asked)
        job = Job(config, rundir, workshop, Progress())
        at_once = len(os.sched_getaffinity(0))
        found = asyncio.run(regrade_run(job, job.tasks(), tier=asked, concurrency=at_once))
    changed = [row for row in found if row.changed]
    invalid = [row for row in found if row.after is None]
    shown = [
        f"{row.table:<12} {row.task_name:<24} {row.sample:>3}  {row.before} -> {row.after}  "
        f"{row.grade.reason}"
        for row in changed
    ]
    Request.plain(as_json).result(
        {
            "graded": len(found),
            "changed": [row.model_dump(mode="json") for row in changed],
            "not_graded": [row.model_dump(mode="json") for row in invalid],
            "tier": asked.value,
        },
        lambda: "\n".join(
            [
                *shown,
                f"{len(found)} attempts at tier {asked.value}: {len(changed)} rewards changed, "
                f"{len(invalid)} could not be graded",
                *(
                    f"not graded: {row.task_name} {row.sample}: {row.grade.reason}"
                    for row in invalid
                ),
            ]
        ),
    )
    return int(bool(invalid))


@command.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--policy", type=click.Choice(["raw", "before", "after"]), default="after")
@click.option("--sample", default=0, show_default=True, help="Which attempt at each task.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["predictions", "atif"]),
    default="predictions",
    show_default=True,
    help="Patches for SWE-bench, or whole trajectories (ATIF 1.8, as Harbor reads them).",
)
def export(run: Path, policy: str, sample: int, form: str) -> int:
    """Print an evaluation for other programs, one JSON row a line."""
    rundir = RunDir.open(run)
    from tadpole.evals.policies import PolicyRole
    from tadpole.evals.predictions import predictions, trajectories

    rows = trajectories if form == "atif" else predictions
    for row in rows(rundir, PolicyRole(policy), sample):
        click.echo(json.dumps(row))
    return 0
