"""Renders the yield of a round as one HTML file."""

from pathlib import Path

from tadpole.pilot.harvest import Harvest, Mark
from tadpole.report.html import environment
from tadpole.rundir import write_atomic


def write_yield(harvest: Harvest, name: str, out: Path) -> Path:
    """Write the page about what ``name`` brought; returns ``out``."""
    page = environment().get_template("yield.html.j2")
    write_atomic(out, page.render(harvest=harvest, name=name, marks=list(Mark)).encode())
    return out
