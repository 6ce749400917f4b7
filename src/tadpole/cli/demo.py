"""``tadpole demo``: the whole loop."""

import asyncio

import click

from tadpole.cli.verb import Request, Verb, settings


@click.command(
    name="demo",
    cls=Verb,
    sections=[
        "run",
        "policy",
        "leaf",
        "tasks",
        "calibrate",
        "warmup",
        "sampling",
        "train",
        "eval",
        "sandbox",
    ],
)
@settings
def command(request: Request) -> int:
    """Make tasks, calibrate, train, evaluate and report; goes on where it stopped.

    Ends with the path of the report and a table: the policy before and after, on tasks that
    were never trained on.

    \b
    tadpole demo                      the whole loop
    tadpole demo --preset quick       a shorter one, which learns little
    tadpole demo --model DIR --config my.toml
    """
    from tadpole.sandboxes import ladder

    ladder.opened(request.config.sandbox)  # a refusal comes before anything is made or loaded

    from tadpole.cli.tables import outcomes
    from tadpole.config import open_run
    from tadpole.demo import demo

    with open_run(request.config) as rundir:
        done = asyncio.run(demo(request.config, rundir, request.progress))
    request.result(
        {
            "report": str(done.report),
            "boards": {name: board.as_dict() for name, board in done.boards.items()},
        },
        lambda: f"{outcomes(done.boards)}\nreport: {done.report}",
    )
    return int(any(board.untrusted for board in done.boards.values()))
