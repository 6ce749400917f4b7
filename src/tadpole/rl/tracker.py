"""Who is told of each update besides ``updates.jsonl``: TensorBoard, Weights & Biases, Trackio.

The rows of the run are what counts; a tracker only shows them. It gets every number of an
:class:`tadpole.rl.metrics.UpdateRow` under the update's number. TensorBoard forgets what a crash
took back; the other two have no way to, so they show an update that was made again twice. To
Weights & Biases the number is a figure of its own, by which it draws all others: its steps only
grow, and what is told of one before the last is thrown away.
"""

import hashlib
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Protocol

from tadpole.errors import UsageError
from tadpole.rl.metrics import UpdateRow
from tadpole.rundir import ROUNDS
from tadpole.settings import Tracker

PROJECT = "tadpole"
STEP = "update"  # the figure that Weights & Biases draws the others by
_PACKAGE = {Tracker.TENSORBOARD: "tensorboard", Tracker.WANDB: "wandb", Tracker.TRACKIO: "trackio"}
_INSTEAD = {
    Tracker.WANDB: "wandb login, or set WANDB_MODE=offline to keep it on this machine",
    Tracker.TRACKIO: "set TRACKIO_DIR to a directory that it may write to",
}


class Tell(Protocol):
    """Takes the row of an update."""

    def __call__(self, row: UpdateRow) -> None:
        """Tell of ``row``."""
        ...


@contextmanager
def tracking(kind: Tracker, run: Path, settings: dict[str, Any], done: int) -> Iterator[Tell]:
    """Tell a tracker of the updates of the run directory ``run``, after the ``done`` that are made.

    ``settings`` are the run's, by dotted name. Raises UsageError where its package is missing, or
    will not begin (no login, no place to write).
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
    name = run_name(run)
    options: dict[str, Any] = {}
    if kind is Tracker.WANDB:  # and it is to leave what this program prints alone
        options = {"dir": str(run), "id": name, "settings": {"console": "off"}}
    with redirect_stdout(sys.stderr):  # stdout is for the result
        try:
            module.init(project=PROJECT, name=name, config=settings, resume="allow", **options)
        except Exception as error:  # each has kinds of its own
            said = " ".join(str(error).split())[:200]
            raise UsageError(
                f"train.tracker is {kind.value}, which does not begin ({said}): "
                f"{_INSTEAD[kind]}, or say --train.tracker none"
            ) from error
    if kind is Tracker.WANDB:
        module.define_metric(STEP)
        module.define_metric("*", step_metric=STEP)

    def log(row: UpdateRow) -> None:
        if kind is Tracker.WANDB:
            module.log(numbers(row) | {STEP: row.update})
        else:
            module.log(numbers(row), step=row.update)

    try:
        yield log
    finally:
        with redirect_stdout(sys.stderr):
            module.finish()


def run_name(run: Path) -> str:
    """A name for a run directory that no other has, and that is the same when it goes on."""
    path = run.resolve()
    parts = [path.parent.parent.name, path.name] if path.parent.name == ROUNDS else [path.name]
    return "-".join([*parts, hashlib.sha256(str(path).encode()).hexdigest()[:8]])


def numbers(row: UpdateRow) -> dict[str, float]:
    """All figures of a row; the endings of its episodes as ``stops/NAME``."""
    found = {
        name: float(value)
        for name, value in row.model_dump(exclude={"format", "update", "stops"}).items()
        if isinstance(value, int | float)
    }
    return found | {f"stops/{stop.value}": float(count) for stop, count in row.stops.items()}
