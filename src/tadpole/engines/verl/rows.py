"""One update on a cluster as a row of ours: from its attempts, its tokens and verl's figures."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from tadpole.engines.verl.places import DROPPED, GAPS, TOKENS
from tadpole.rl.metrics import UpdateRow
from tadpole.rl.provenance import digest
from tadpole.rl.samples import lags
from tadpole.rundir import RunDir
from tadpole.trace import Attempt

STALE = "training/off_policy/evicted_samples"
FAILED = "training/rollout_failure/evicted_samples"


@dataclass(frozen=True)
class Trained:
    """What an update was trained on, as its traces say."""

    tokens: int
    digest: str
    lag_mean: float  # over trained tokens, in updates
    lag_max: int


def trained_on(rundir: RunDir, attempts: Sequence[Attempt], update: int) -> Trained:
    """Read the traces of ``attempts``: slow for long ones, so that it runs beside the update."""
    traces = [rundir.load_trace(attempt.trace) for attempt in attempts]
    found = lags(traces, update)
    return Trained(
        tokens=len(found),
        digest=digest(traces),
        lag_mean=sum(found) / len(found) if found else 0.0,
        lag_max=max(found, default=0),
    )


def begun(
    pool: Executor, rundir: RunDir, attempts: Sequence[Attempt], update: int
) -> "Future[Trained]":
    """:func:`trained_on`, beside whatever the caller does next."""
    return pool.submit(trained_on, rundir, attempts, update)


def row_of(
    attempts: Sequence[Attempt],
    trained: Trained,
    figures: Mapping[str, Any],
    *,
    update: int,
    fingerprint: str,
    groups: int,
    alike: Sequence[Sequence[Attempt]] = (),
) -> UpdateRow:
    """The row. ``figures`` are verl's metrics of this update.

    ``attempts`` in ``groups`` groups are trained on; those of ``alike`` were rolled out besides
    and have no signal. Rewards, turns and endings are those of both.
    """
    counted = figures.get(TOKENS, 0.0)
    norm = float(figures.get("actor/grad_norm", 0.0))
    rolled = [*attempts, *(attempt for group in alike for attempt in group)]
    row = UpdateRow.of(rolled, None, update=update)
    return row.model_copy(
        update={
            "groups": groups + len(alike),
            "dropped_groups": len(alike),
            "solved_groups": sum(group[0].reward == 1.0 for group in alike),
            "stale_groups": int(figures.get(STALE, 0)),
            "broken_groups": int(figures.get(FAILED, 0)),
            "tokens": trained.tokens,
            "loss": float(figures["actor/loss"]) if "actor/loss" in figures else None,
            "grad_norm": norm,
            "skipped": "" if math.isfinite(norm) else f"gradient norm {norm} is not finite",
            "mean_abs_pq": figures[GAPS] / counted if counted else None,
            "dropped_share": figures[DROPPED] / counted if counted else 0.0,
            "lag_max": trained.lag_max,
            "lag_mean": trained.lag_mean,
            "traces": tuple(attempt.trace for attempt in attempts),
            "digest": trained.digest,
            "fingerprint": fingerprint,
        }
    )
