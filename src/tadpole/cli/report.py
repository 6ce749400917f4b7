"""``tadpole report``: one HTML file about a run."""

from pathlib import Path

import click

from tadpole.rundir import RunDir


@click.command(name="report")
@click.argument("run", type=click.Path(path_type=Path), default=Path("runs/main"))
@click.option("--out", type=click.Path(path_type=Path), help="Where to; default RUN/report.html.")
def command(run: Path, out: Path | None) -> int:
    """Write one self-contained HTML file about RUN, finished or not; prints its path."""
    rundir = RunDir.open(run)
    from tadpole.report.html import write_report

    click.echo(write_report(rundir, out))
    return 0
