"""Charts as inline SVG. Colours are CSS variables, so that they follow light and dark."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tadpole.evals.intervals import Estimate
from tadpole.rl.metrics import UpdateRow

# Colours that stand for CSS variables until the SVG is text.
_INK, _FAINT, _LINE = "#010101", "#020202", "#030303"
_ONE, _TWO = "#040404", "#050505"
_VARIABLES = {_INK: "--ink", _FAINT: "--faint", _LINE: "--line", _ONE: "--one", _TWO: "--two"}
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tadpole",  # the same rows give the same bytes
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.labelcolor": _FAINT,
    "axes.edgecolor": _LINE,
    "axes.titlecolor": _INK,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


def learning_curve(rows: Sequence[UpdateRow], starts: Sequence[int] = ()) -> Markup:
    """Mean raw reward by update: each update, and the mean of the last few with its band.

    ``starts`` are the first updates of later rounds, which are on other tasks: no mean is of two.
    """
    points = [(row.update, row.mean_reward) for row in rows if row.mean_reward is not None]
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(9.4, 3.1))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.065, right=0.99, top=0.96, bottom=0.16)
        updates = np.array([update for update, _ in points], dtype=float)
        rewards = np.array([reward for _, reward in points], dtype=float)
        window = max(3, len(points) // 10)
        for part in np.split(np.arange(len(updates)), np.searchsorted(updates, starts)):
            if not len(part):
                continue
            smooth, error = _running(rewards[part], window)
            low, high = smooth - 1.96 * error, smooth + 1.96 * error
            axes.fill_between(updates[part], low, high, color=_ONE, alpha=0.16, lw=0)
            axes.plot(updates[part], smooth, color=_ONE, lw=2)
        axes.plot(updates, rewards, "o", color=_ONE, markersize=3, alpha=0.4, markeredgewidth=0)
        _borders(axes, starts)
        axes.set_ylim(0, max(0.1, min(1.0, float(rewards.max(initial=0.0)) * 1.15 + 0.02)))
        axes.set_xlabel("update")
        axes.set_ylabel("mean reward")
        _whole_ticks(axes)
        return _svg(figure, f"Mean reward by update, with the mean of {window} updates")


def health(rows: Sequence[UpdateRow], starts: Sequence[int] = ()) -> Markup:
    """Small charts of what an update did: trust region, agreement, entropy, length."""
    series: Mapping[str, list[float | None]] = {
        "dropped tokens (share)": [row.dropped_share for row in rows],
        "mean |p − q|": [row.mean_abs_pq for row in rows],
        "entropy (nats per token)": [row.entropy for row in rows],
        "groups without signal": [float(row.dropped_groups) for row in rows],
        "turns per episode": [row.mean_turns for row in rows],
        "generated tokens per episode": [row.mean_generated for row in rows],
    }
    present = {name: ys for name, ys in series.items() if any(y is not None for y in ys)}
    with rc_context(_SETTINGS):
        rows_of_3 = -(-len(present) // 3)
        height = 1.75 * rows_of_3  # inches
        figure = Figure(figsize=(9.4, height))
        grid = figure.subplots(rows_of_3, 3, squeeze=False).ravel()
        # Room for numbers of seven characters: to find out how long they are takes as long as
        # all the drawing does.
        figure.subplots_adjust(
            left=0.065, right=0.99, top=1 - 0.27 / height, bottom=0.24 / height,
            wspace=0.27, hspace=0.5,
        )  # fmt: skip
        for axes, (name, ys) in zip(grid, present.items(), strict=False):
            known = [(r.update, y) for r, y in zip(rows, ys, strict=True) if y is not None]
            axes.plot(*zip(*known, strict=True), color=_TWO, lw=1.4, marker="o", markersize=2)
            _borders(axes, starts)
            axes.set_title(name, loc="left")
            axes.set_ylim(0, 1.15 * max(y for _, y in known) or 1.0)
            axes.locator_params(axis="y", nbins=4)
            _whole_ticks(axes)
        for axes in grid[len(present) :]:
            axes.set_visible(False)
        return _svg(figure, "What each update did")


def intervals(estimates: Mapping[str, Estimate]) -> Markup:
    """pass@1 with intervals, one line per policy, the first on top."""
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(5.2, 0.6 + 0.42 * len(estimates)), layout="constrained")
        axes = figure.subplots()
        for row, (name, found) in enumerate(estimates.items()):
            colour = _ONE if row == len(estimates) - 1 else _FAINT
            axes.plot([found.low, found.high], [row, row], color=colour, lw=3, alpha=0.45)
            axes.plot([found.value], [row], "o", color=colour, markersize=7, clip_on=False)
            axes.annotate(name, (0, row), (-8, 0), textcoords="offset points", ha="right",
                          va="center", color=_INK)  # fmt: skip
        axes.set_yticks([])
        axes.set_ylim(len(estimates) - 0.5, -0.5)
        axes.set_xlim(0, 1)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("pass@1, 95% interval")
        return _svg(figure, "pass@1 before and after")


def _running(values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the last ``window`` values and its standard error, at each place."""
    means, errors = np.zeros(len(values)), np.zeros(len(values))
    for i in range(len(values)):
        part = values[max(0, i - window + 1) : i + 1]
        means[i] = part.mean()
        errors[i] = part.std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else 0.0
    return means, errors


def _borders(axes: Axes, starts: Sequence[int]) -> None:
    """A line before the first update of each later round."""
    for start in starts:
        axes.axvline(start - 0.5, color=_FAINT, lw=0.8, ls=":")


def _whole_ticks(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _svg(figure: Figure, title: str) -> Markup:
    out = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(
        r' id="(?:figure|axes|patch|line2d|text|matplotlib|xtick|ytick|Fill)[^"]*"', "", text
    )
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    text = text.replace("<svg ", f'<svg role="img" aria-label="{title}" class="chart" ', 1)
    return Markup(text)  # our own figure: its labels are escaped by matplotlib
