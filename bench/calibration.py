"""What a calibration rule costs and finds, simulated against fixed N = 8.

True pass rates are drawn (seeded) from four kinds of pool; a task is attempted as calibration
would (:class:`tadpole.pilot.decision.Rule`, the very object that decides there) and is admitted
or not; over the luck of its attempts is summed exactly. A task is *right* where its true rate
lies in the band. Printed for every rule: rollouts spent on a task of the pool, rollouts spent
for each right one that was admitted (as a share of what fixed N = 8 spends), precision (admitted
tasks that are right) and recall (right tasks that are admitted). The pools are stand-ins:
compare the rows, not the figures.

    python -m bench.calibration [--tasks 20000] [--seed 0] [--all]

The last line names the default of ``calibrate.samples`` and ``calibrate.probe``: the fewest
rollouts for a right task, among the rules that are as precise as fixed N = 8 (to half a point)
and find at least 0.8 of what it finds. Candidates are made for a thousandth of what rollouts
cost, so that a right task which is missed is cheaper than one which is proven at length.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import click
import numpy as np

from tadpole.pilot.decision import Rule, Verdict

BANDS = {"own 0.125..0.875": (0.125, 0.875), "middle": (0.375, 0.625), "lower": (0.0, 0.5)}
POOLS: dict[str, Callable[[random.Random], float]] = {
    "even": lambda rng: rng.random(),
    "either or": lambda rng: rng.betavariate(0.35, 0.35),  # mostly never or always solved
    "hard": lambda rng: 0.0 if rng.random() < 0.4 else rng.betavariate(0.6, 1.8),
    "easy": lambda rng: 1.0 if rng.random() < 0.4 else rng.betavariate(1.8, 0.6),
}
FIXED = 8
SAMPLES = (4, 8, 12, 16)
PROBES = (0, 3, 4, 6)
AS_PRECISE = 0.005  # less precise than fixed N by this is as precise
ENOUGH = 0.8  # of the recall of fixed N


@dataclass(frozen=True)
class Way:
    """A rule without its band; ``fixed`` makes all attempts whatever they say."""

    samples: int
    probe: int = 0
    fixed: bool = False

    def __str__(self) -> str:
        if self.fixed:
            return f"fixed N = {self.samples}"
        return f"N = {self.samples}, " + (f"probe {self.probe}" if self.probe else "no probe")


@dataclass(frozen=True)
class Figures:
    """What came of one way in one pool and band."""

    spent: float  # rollouts a task
    precision: float
    recall: float
    right: float  # rollouts for each right task that was admitted


def ways() -> Iterator[Way]:
    """Fixed N first."""
    yield Way(FIXED, fixed=True)
    for samples in SAMPLES:
        yield from (Way(samples, probe) for probe in PROBES if probe < samples)


def endings(way: Way, rule: Rule) -> dict[tuple[int, int], int]:
    """Where a task can end, (passes, valid), and in how many orders of successes it gets there."""
    done: dict[tuple[int, int], int] = {}
    open_ = {(0, 0): 1}
    while open_:
        (passes, valid), orders = open_.popitem()
        owed = way.samples - valid if way.fixed else rule.owed(passes, valid)
        if not owed:
            done[passes, valid] = done.get((passes, valid), 0) + orders
        for won in range(owed + 1) if owed else ():
            place = (passes + won, valid + owed)
            open_[place] = open_.get(place, 0) + orders * math.comb(owed, won)
    return done


def simulate(way: Way, rates: np.ndarray[Any, Any], band: tuple[float, float]) -> Figures:
    """Attempt every task by one way. Luck is summed over, not drawn: only the rates are."""
    rule = Rule(way.samples, *band, probe=way.probe)
    spent, kept = np.zeros_like(rates), np.zeros_like(rates)
    for (passes, valid), orders in endings(way, rule).items():
        chance = orders * rates**passes * (1 - rates) ** (valid - passes)
        spent += chance * valid
        kept += chance * (rule.verdict(passes, valid) is Verdict.KEEP)
    inside = (rates > 0) & (rates < 1) & (rates >= band[0]) & (rates <= band[1])
    right = float(kept[inside].sum())
    return Figures(
        spent=float(spent.mean()),
        precision=right / float(kept.sum()),
        recall=right / int(inside.sum()),
        right=float(spent.sum()) / right,
    )


def table(tasks: int, seed: int) -> dict[Way, dict[tuple[str, str], Figures]]:
    """Every way on every pool and band in which it can keep anything."""
    found: dict[Way, dict[tuple[str, str], Figures]] = {}
    for pool, draw in POOLS.items():
        rng = random.Random(f"{seed} {pool}")
        rates = np.array([draw(rng) for _ in range(tasks)])
        for way in ways():
            for name, band in BANDS.items():
                if Rule(way.samples, *band).possible:
                    found.setdefault(way, {})[pool, name] = simulate(way, rates, band)
    return found


@dataclass(frozen=True)
class Mean:
    """One way over several pools and bands; ``right`` as a share of what fixed N spends."""

    spent: float
    precision: float
    recall: float
    right: float

    @classmethod
    def of(cls, mine: list[Figures], fixed: list[Figures]) -> "Mean":
        """Cell by cell against fixed N."""
        return cls(
            spent=fmean(cell.spent for cell in mine),
            precision=fmean(cell.precision for cell in mine),
            recall=fmean(cell.recall for cell in mine),
            right=fmean(one.right / base.right for one, base in zip(mine, fixed, strict=True)),
        )


def means(found: dict[Way, dict[tuple[str, str], Figures]], cells: list[Any]) -> dict[Way, Mean]:
    """Those that can keep something in all of the cells."""
    fixed = [found[Way(FIXED, fixed=True)][cell] for cell in cells]
    return {
        way: Mean.of([figures[cell] for cell in cells], fixed)
        for way, figures in found.items()
        if all(cell in figures for cell in cells)
    }


def pick(rows: dict[Way, Mean]) -> Way:
    """The default (see the top)."""
    base = rows[Way(FIXED, fixed=True)]
    fair = {
        way: row.right
        for way, row in rows.items()
        if row.precision >= base.precision - AS_PRECISE and row.recall >= ENOUGH * base.recall
    }
    return min(fair, key=lambda way: fair[way])


@click.command()
@click.option("--tasks", default=20_000, help="Tasks of a pool.")
@click.option("--seed", default=0, help="Seed of rates and attempts.")
@click.option("--all", "every", is_flag=True, help="One table for each pool and band too.")
def main(tasks: int, seed: int, every: bool) -> None:
    """Print the tables and the rule that is picked."""
    found = table(tasks, seed)
    cells = list(found[Way(FIXED, fixed=True)])
    for cell in cells if every else ():
        _print(", ".join(cell), means(found, [cell]))
    rows = means(found, cells)
    _print("mean of all pools and bands", rows)
    best = pick(rows)
    row = rows[best]
    click.echo(
        f"\npicked: {best}; of what fixed N = {FIXED} spends {row.spent / FIXED:.2f} a task and "
        f"{row.right:.2f} a right task"
    )


def _print(name: str, rows: dict[Way, Mean]) -> None:
    click.echo(
        f"\n{name}\n{'rule':<20}{'rollouts':>9}{'a right one':>13}{'precision':>11}{'recall':>8}"
    )
    for way, row in rows.items():
        click.echo(
            f"{way!s:<20}{row.spent:>9.2f}{row.right:>13.2f}{row.precision:>11.3f}{row.recall:>8.3f}"
        )


if __name__ == "__main__":
    main()
