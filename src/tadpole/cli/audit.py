"""``tadpole audit``: whether a run is what it claims to be."""

from pathlib import Path

import click

from tadpole.cli.verb import tell
from tadpole.config import saved
from tadpole.rundir import CONFIG, RunDir


@click.group(name="audit")
def command() -> None:
    """Say whether a run is what it claims to be."""


@command.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def provenance(run: Path, as_json: bool) -> int:
    """Was every token that RUN trained on sampled by the policy itself? Yes or no, and why.

    Exit code 1 where not.
    """
    rundir = RunDir.open(run)
    from tadpole.rl.provenance import as_json as printed
    from tadpole.rl.provenance import provenance as walk
    from tadpole.rl.provenance import told

    found = walk(rundir, saved(rundir.path / CONFIG).train.max_lag)
    if as_json:
        click.echo(printed(found))
    else:
        tell(told(found))
    return int(bool(found.violation))
