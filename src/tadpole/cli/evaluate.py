"""``tadpole eval``: a policy on the held-out tasks of a run."""

import asyncio

import click

from tadpole.cli.verb import Request, Verb, settings


@click.group(name="eval")
def command() -> None:
    """Evaluate a policy on the held-out tasks of a run."""


@command.command(cls=Verb, sections=["eval", "policy", "leaf"])
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
    from tadpole.stages import evaluate_policy

    with request.job() as job:
        board = asyncio.run(evaluate_policy(job, PolicyRole(policy)))
    request.result(board.as_dict(), lambda: outcomes({policy: board}))
    return int(board.untrusted > 0)
