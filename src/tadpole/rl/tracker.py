"""Who is told of each update besides ``updates.jsonl``: TensorBoard, Weights & Biases, Trackio.

The rows of the run are what counts; a tracker only shows them. It gets every number of an
:class:`tadpole.rl.metrics.UpdateRow` under the update's number.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tadpole.errors import UsageError
from tadpole.rl.metrics import UpdateRow
from tadpole.settings import Tracker

PROJECT = "tadpole"
_PACKAGE = {Tracker.TENSORBOARD: "tensorboard", Tracker.WANDB: "wandb", Tracker.TRACKIO: "trackio"}


class Tell(Protocol):
    """Takes the row of an update."""

    def __call__(self, row: UpdateRow) -> None:
        """Tell of ``row``."""
        ...


@contextmanager
def tracking(kind: Tracker, run: Path, settings: dict[str, Any], done: int) -> Iterator[Tell]:
    """Tell a tracker of the updates of the run directory ``run``, after the ``done`` that are made.

    ``settings`` are the run's, by dotted name. Raises UsageError where its package is missing.
    """
    if kind is Tracker.NONE:
        yield lambda row: None
        return
    package = _PACKAGE[kind]
    try:
        module = importlib.import_module(package)
    except ImportError:
        raise UsageError(
            f"train.tracker is {kind.value}, which is not installed: pip install {package}, or say "
            "--train.tracker none"
        ) from None
    if kind is Tracker.TENSORBOARD:
        from torch.utils.tensorboard import SummaryWriter

        # What a run before a crash has told beyond its checkpoint does not hold any more.
        with SummaryWriter(run / package, purge_step=done + 1) as writer:

            def tell(row: UpdateRow) -> None:
                for name, value in numbers(row).items():
                    writer.add_scalar(name, value, row.update)
                writer.flush()

            yield tell
        return
    name = run.resolve().name
    options = {"dir": str(run), "id": name} if kind is Tracker.WANDB else {}
    module.init(project=PROJECT, name=name, config=settings, resume="allow", **options)
    try:
        yield lambda row: module.log(numbers(row), step=row.update)
    finally:
        module.finish()


def numbers(row: UpdateRow) -> dict[str, float]:
    """All figures of a row; the endings of its episodes as ``stops/NAME``."""
    found = {
        name: float(value)
        for name, value in row.model_dump(exclude={"format", "update", "stops"}).items()
        if isinstance(value, int | float)
    }
    return found | {f"stops/{stop.value}": float(count) for stop, count in row.stops.items()}
