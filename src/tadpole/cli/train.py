"""``tadpole train``: the climbs of a run, round after round."""

import asyncio

import click

from tadpole.cli.verb import Request, Verb, settings, tell
from tadpole.config import Config
from tadpole.engines.cluster import Trainer
from tadpole.engines.plan import plan, told
from tadpole.engines.shape import shape_of
from tadpole.errors import ConfigError


def dry_run(config: Config) -> int | None:
    """On a cluster: its whole command line, validated. None: there is no more to say."""
    if config.cluster.trainer is not Trainer.VERL:
        return None
    from tadpole.engines.verl.dryrun import validated
    from tadpole.engines.verl.overrides import overrides

    asked = overrides(config)
    click.echo("\n".join(asked))
    wrong = validated(asked)
    tell(f"tadpole: {wrong or 'verl composed and validated all of it'}", err=True)
    return 1 if wrong else 0


def planned(config: Config) -> int:
    """Print the plan; 1 where it does not fit."""
    found = plan(config, shape_of(config.policy.model), rank=config.train.lora.rank)
    refusal = found.refusal()
    click.echo(told(found))
    if refusal:
        click.echo(f"tadpole: {refusal}", err=True)
    return 1 if refusal else 0


def refuse_what_cannot_fit(config: Config) -> None:
    """Raises ConfigError where the size of the GPUs is known and the plan does not fit them."""
    if config.cluster.gpu_gib:
        refusal = plan(config, shape_of(config.policy.model), rank=config.train.lora.rank).refusal()
        if refusal:
            raise ConfigError(refusal)


@click.command(
    name="train",
    cls=Verb,
    sections=["policy", "leaf", "grading", "sampling", "warmup", "train", "cluster"],
    dry_run=dry_run,
    short={"engine": "cluster.trainer"},
)
@click.option("--engine", metavar="ENGINE", help="local or verl (--cluster.trainer).")
@click.option("--plan", "only_plan", is_flag=True, help="Print memory, tokens and hours; stop.")
@settings
def command(request: Request, only_plan: bool) -> int:
    """Train the policy on the calibrated tasks of a run; goes on where it stopped.

    \b
    tadpole train --run runs/mine --train.updates 50
    tadpole train --run runs/mine --train.rounds 5     # makes the tasks of later rounds, too
    tadpole train --engine verl --preset verl-report --plan
    """
    if only_plan:
        return planned(request.config)
    refuse_what_cannot_fit(request.config)
    with request.job() as job:
        from tadpole.rounds import train

        trained = asyncio.run(train(job))
    request.result({"checkpoint": str(trained)}, lambda: str(trained))
    return 0
