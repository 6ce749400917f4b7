"""Renders a run as one HTML file: the same run directory gives the same bytes."""

import functools
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tadpole.evals.intervals import Estimate
from tadpole.evals.policies import PolicyRole
from tadpole.outcome import OUTCOME_POLICY, Outcome
from tadpole.pilot.harvest import Mark
from tadpole.progress import clock
from tadpole.report.collect import Story, collect
from tadpole.report.episodes import call_line, choose, clip, prose
from tadpole.rundir import RunDir, write_atomic
from tadpole.settings import EMBEDDED

NAMES = {
    PolicyRole.RAW: "raw model",
    PolicyRole.BEFORE: "before training",
    PolicyRole.AFTER: "after training",
}


def write_report(run: RunDir, out: Path | None = None) -> Path:
    """Write the report of ``run`` to ``out`` (default: ``report.html`` in it); returns its path.

    Works on a run that is not finished. Raises RunError where its rows cannot be read.
    """
    path = out or run.path / "report.html"
    write_atomic(path, render(collect(run)).encode())
    return path


def render(story: Story) -> str:
    """The HTML of a story."""
    page = environment().get_template("report.html.j2")
    model = story.config.policy.model
    names = _names(story)
    boards = {names[role]: board for role, board in story.boards.items()}
    estimates = {name: board.pass_at_1 for name, board in boards.items()}
    known = {name: found for name, found in estimates.items() if found}
    before, after = story.boards.get(PolicyRole.BEFORE), story.boards.get(PolicyRole.AFTER)
    charts = _charts(story, known)
    return page.render(
        story=story,
        updates=story.updates.rows,
        model=model if model != EMBEDDED else "SmolLM2-135M-Instruct (embedded)",
        boards=boards,
        before=before and before.pass_at_1,
        after=after and after.pass_at_1,
        outcomes=[o for o in Outcome if OUTCOME_POLICY[o].trust],
        **charts,
        stops=_stops(story),
        episodes=choose(story.run, story.attempts, before, after),
        seconds=sum(row.seconds for row in story.stages),
        marks=list(Mark),
    )


def _charts(story: Story, known: dict[str, Estimate]) -> dict[str, Markup | None]:
    """The charts that there is something for; without any nothing of matplotlib is loaded."""
    found: dict[str, Markup | None] = {"interval_chart": None, "curve": None, "health": None}
    rows, starts = story.updates.rows, story.updates.starts
    if not known and not rows:
        return found
    from tadpole.report import charts

    if known:
        found["interval_chart"] = charts.intervals(known)
    if any(row.mean_reward is not None for row in rows):
        found["curve"] = charts.learning_curve(rows, starts)
    if rows:
        found["health"] = charts.health(rows, starts)
    return found


def _names(story: Story) -> dict[PolicyRole, str]:
    start = story.policies.get(PolicyRole.BEFORE)
    warm = "warmed up" if start and start.warmed_up else NAMES[PolicyRole.BEFORE]
    return {**NAMES, PolicyRole.BEFORE: warm, PolicyRole.AFTER: "trained"}


def _stops(story: Story) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in story.updates.rows:
        for stop, count in row.stops.items():
            counts[stop.value] = counts.get(stop.value, 0) + count
    return counts


@functools.cache
def environment() -> Environment:
    """The templates, with their filters."""
    found = Environment(
        loader=PackageLoader("tadpole.report", "templates"),
        autoescape=select_autoescape(["j2", "html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = Path(__file__).with_name("templates") / "report.css"
    found.globals["css"] = Markup(css.read_text(encoding="utf-8"))
    found.filters |= {
        "clip": clip,
        "prose": prose,
        "call": call_line,
        "clock": clock,
        "words": lambda text: str(text).replace("_", " "),
        "percent": lambda share: f"{100 * share:.1f}%",
    }
    return found
