"""``tadpole train``: the climbs of a run, round after round."""

import asyncio

import click

from tadpole.cli.verb import Request, Verb, settings


@click.command(
    name="train", cls=Verb, sections=["policy", "leaf", "grading", "sampling", "warmup", "train"]
)
@settings
def command(request: Request) -> int:
    """Train the policy on the calibrated tasks of a run; goes on where it stopped.

    \b
    tadpole train --run runs/mine --train.updates 50
    tadpole train --run runs/mine --train.rounds 5     # makes the tasks of later rounds, too
    """
    with request.job() as job:
        from tadpole.rounds import train

        trained = asyncio.run(train(job))
    request.result({"checkpoint": str(trained)}, lambda: str(trained))
    return 0
