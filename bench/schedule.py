"""What a policy lag buys, simulated: throughput and staleness by lag, engines and spread.

The scheduler is the one that a climb uses (tadpole.rl.scheduler), on virtual time; episodes,
engines and the learner are modelled. An engine slows each of its streams down the more of them it
has; an episode is turns of sampling on the least loaded engine with tool calls in between; its
length is lognormal. The rates are stand-ins, not measurements: compare the rows, not the hours.

    python -m bench.schedule --updates 20
"""

import asyncio
import random
import statistics
from collections import Counter
from dataclasses import dataclass, field, replace

import click

from bench.virtualtime import run_virtual
from tadpole.rl.scheduler import Batch, Scheduler


@dataclass(frozen=True)
class Shape:
    """What is simulated. Rates are tokens a second, times seconds."""

    lag: int = 1
    engines: int = 6
    places: int = 256  # episodes at a time
    groups: int = 32
    group_size: int = 8
    spread: float = 0.8  # sigma of the lognormal episode length; 0: all alike
    median_turns: float = 24.0
    turn_tokens: float = 300.0
    tool_seconds: float = 3.0  # mean, exponential
    stream_rate: float = 120.0  # of one stream that has an engine to itself
    half_at: float = 40.0  # streams at which each one has half of that
    update_rate: float = 12_000.0  # of the learner, generated tokens
    publish_seconds: float = 15.0
    broken: float = 0.01  # share of attempts whose box dies
    patience: float = 7_200.0
    updates: int = 40
    seed: int = 0


@dataclass
class Figures:
    """What came of it."""

    seconds: float = 0.0
    idle: float = 0.0  # of the learner
    tokens: int = 0  # trained on
    lags: Counter[int] = field(default_factory=Counter)  # tokens by lag
    wasted: int = 0  # tokens of episodes that were voided or given up
    left_out: int = 0  # episodes
    most_waiting: int = 0
    most_under_way: int = 0

    @property
    def rate(self) -> float:
        """Trained tokens a second."""
        return self.tokens / self.seconds

    @property
    def mean_lag(self) -> float:
        """Mean over trained tokens, in updates."""
        return sum(lag * count for lag, count in self.lags.items()) / max(1, self.tokens)


class Engines:
    """Sampling whose speed depends on the load. ``version`` is that of the weights in force."""

    def __init__(self, shape: Shape):
        self.shape, self.version = shape, 0
        self.load = [0] * shape.engines

    async def turn(self, tokens: int) -> int:
        """Sample ``tokens``; the version that did."""
        engine = self.load.index(min(self.load))
        self.load[engine] += 1
        version = self.version
        try:
            slowdown = 1 + (self.load[engine] - 1) / self.shape.half_at
            await asyncio.sleep(tokens / self.shape.stream_rate * slowdown)
        finally:
            self.load[engine] -= 1
        return version


Episode = Counter[int]  # tokens by the version that sampled them


def simulate(shape: Shape) -> Figures:
    """Run all updates of one shape. The same shape gives the same figures."""
    return run_virtual(_simulate(shape))


async def _simulate(shape: Shape) -> Figures:
    engines, figures = Engines(shape), Figures()
    loop = asyncio.get_running_loop()
    tries: Counter[tuple[int, int]] = Counter()
    free_since = 0.0

    async def attempt(job: tuple[int, int]) -> Episode | None:
        tries[job] += 1
        rng = random.Random(f"{shape.seed} {job} {tries[job]}")
        turns = max(1, round(shape.median_turns * rng.lognormvariate(0, shape.spread)))
        dies_at = rng.randrange(turns) if rng.random() < shape.broken else None
        figures.most_under_way = max(figures.most_under_way, scheduler.under_way)
        made: Episode = Counter()
        finished = False
        try:
            for turn in range(turns):
                if turn == dies_at:
                    return None
                tokens = max(1, round(shape.turn_tokens * rng.lognormvariate(-0.125, 0.5)))
                made[await engines.turn(tokens)] += tokens
                await asyncio.sleep(rng.expovariate(1 / shape.tool_seconds))
            finished = True
        finally:
            if not finished:
                figures.wasted += made.total()
        return made

    async def learn(update: int, batch: Batch[tuple[int, int], Episode]) -> None:
        nonlocal free_since
        figures.idle += loop.time() - free_since
        episodes = [episode for episode in batch.results if episode is not None]
        figures.left_out += len(batch.results) - len(episodes)
        tokens = 0
        for episode in episodes:
            for version, count in episode.items():
                figures.lags[update - 1 - version] += count
                tokens += count
        for _ in range(20):  # looks now and then how far the rollouts have run ahead
            await asyncio.sleep((tokens / shape.update_rate + shape.publish_seconds) / 20)
            figures.most_waiting = max(figures.most_waiting, scheduler.waiting)
        figures.tokens += tokens
        engines.version = update
        free_since = loop.time()

    scheduler = Scheduler(
        plan=lambda update: [(update, n) for n in range(shape.groups * shape.group_size)],
        attempt=attempt,
        learn=learn,
        max_lag=shape.lag,
        places=shape.places,
        patience=shape.patience,
    )
    await scheduler.run(1, shape.updates)
    figures.seconds = loop.time()
    return figures


@click.command()
@click.option("--updates", default=20, help="Updates of each simulated climb.")
@click.option("--seeds", default=2, help="Seeds; the rates are means over them.")
def main(updates: int, seeds: int) -> None:
    """Print the tables."""
    published = Shape(updates=updates)
    click.echo("published shape: 6 engines, 32 x 8, 256 places, long-tailed lengths")
    table(published, seeds, [{"lag": lag} for lag in (0, 1, 3)])
    click.echo("\nby spread of the lengths (sigma), lag 0 and 1")
    table(published, seeds, [{"spread": s, "lag": g} for s in (0.0, 0.5, 1.2) for g in (0, 1)])
    click.echo("\nby number of engines, lag 0, 1 and 3")
    table(
        published,
        seeds,
        [{"engines": e, "lag": g} for e in (1, 16, 64) for g in (0, 1, 3)],
    )


def table(base: Shape, seeds: int, changes: list[dict[str, float]]) -> None:
    """Print a row for each change of ``base``; ratios are against the last one of lag 0."""
    click.echo(
        f"{'':<24}{'tokens/s':>10}{'ratio':>8}{'updates/h':>11}{'learner idle':>14}"
        f"{'mean lag':>10}{'wasted':>8}  share of tokens by lag"
    )
    first: float | None = None
    for change in changes:
        shapes = [replace(base, seed=seed, **change) for seed in range(seeds)]
        runs = [simulate(shape) for shape in shapes]
        rate = statistics.mean(run.rate for run in runs)
        first = rate if first is None or not change["lag"] else first
        lags: Counter[int] = sum((run.lags for run in runs), Counter())
        shares = " ".join(f"{lag}: {lags[lag] / lags.total():.0%}" for lag in sorted(lags))
        hours = sum(run.seconds for run in runs) / 3600
        click.echo(
            f"{', '.join(f'{k} {v:g}' for k, v in change.items()):<24}"
            f"{rate:>10.0f}{rate / first:>8.2f}{base.updates * seeds / hours:>11.1f}"
            f"{sum(run.idle for run in runs) / hours / 3600:>14.0%}"
            f"{statistics.mean(run.mean_lag for run in runs):>10.2f}"
            f"{sum(r.wasted for r in runs) / (lags.total() + sum(r.wasted for r in runs)):>8.1%}"
            f"  {shares}"
        )


if __name__ == "__main__":
    main()
