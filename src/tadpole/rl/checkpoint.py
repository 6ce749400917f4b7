"""Checkpoints of a climb: a Hugging Face directory, the optimizer's state, and where it stood.

A checkpoint is written beside its place and renamed into it, so that one that exists is whole.
Only the newest keeps its optimizer state: it is twice as large as the weights. One that is pruned
leaves what it said of itself, so that the way from the last one back to the first can be walked.
Where adapters are trained the weights are those with the adapters merged in; the adapters, which
a climb goes on from, lie in ``adapter/``.
"""

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tadpole.errors import ModelError, TrainerError
from tadpole.models.location import weights_hash
from tadpole.settings import ProfileName
from tadpole.trace import Record

if TYPE_CHECKING:  # who only reads what checkpoints say of themselves needs no torch
    from tadpole.rl.learner import Learner

STATE, OPTIMIZER, ADAPTER = "tadpole.json", "optimizer.pt", "adapter"
_BEFORE = "remove that directory to go on from before it, with new moments of the optimizer"
PRUNED = "pruned.json"  # what is left of a checkpoint's state once it was pruned


class CheckpointState(Record):
    """What a checkpoint says of itself."""

    format: Literal[1] = 1
    update: int  # updates that have been applied
    fingerprint: str  # name of these weights in the rows
    weights: str = ""  # hash of the weight files, set when they are written
    parent: str = ""  # the same of the checkpoint before, or of the weights it all began with
    profile: ProfileName | None = None  # in which it was trained; None: not recorded


def save_checkpoint(
    root: Path, model: Any, tokenizer: Any, learner: "Learner | None", state: CheckpointState
) -> Path:
    """Write ``root/update-N`` and return it. Raises OSError; older checkpoints stay."""
    from tadpole.models.adapters import has_adapters, save_adapters, save_model

    target = root / f"update-{state.update:05d}"
    beside = root / f".{target.name}.part"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        save_model(model, beside)
        if has_adapters(model):
            save_adapters(model, beside / ADAPTER)
        tokenizer.save_pretrained(beside)
        if learner is not None:
            learner.save(beside / OPTIMIZER)
        state = state.model_copy(update={"weights": weights_hash(beside)})
        (beside / STATE).write_text(state.model_dump_json())
        shutil.rmtree(target, ignore_errors=True)
        os.replace(beside, target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    for older in checkpoints(root)[:-1]:
        (older / OPTIMIZER).unlink(missing_ok=True)
    return target


def checkpoints(root: Path) -> list[Path]:
    """All whole checkpoints, oldest first."""
    return sorted(path.parent for path in root.glob(f"update-*/{STATE}"))


def prune(root: Path, keep: int, besides: Collection[str] = ()) -> None:
    """Delete all but the ``keep`` newest checkpoints (0: none); the newest always stays.

    Those whose fingerprint is in ``besides`` stay, too. What a kill left of this is done as well.
    """
    for path in checkpoints(root)[:-keep] if keep else []:
        if read_state(path).fingerprint not in besides:
            os.replace(path / STATE, path / PRUNED)  # from here on it does not count as whole
    for record in root.glob(f"update-*/{PRUNED}"):
        for entry in list(record.parent.iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != record:
                entry.unlink()


def pruned_states(root: Path) -> list[CheckpointState]:
    """What the checkpoints that were pruned said of themselves, oldest first."""
    return [
        CheckpointState.model_validate_json(record.read_bytes())
        for record in sorted(root.glob(f"update-*/{PRUNED}"))
    ]


def read_state(checkpoint: Path) -> CheckpointState:
    """What a checkpoint says of itself."""
    return CheckpointState.model_validate_json((checkpoint / STATE).read_bytes())


def load_weights(model: Any, checkpoint: Path) -> None:
    """Replace a model's weights in place by those of a checkpoint of the same shape.

    Of a model with adapters only these are replaced. Raises TrainerError where they are damaged,
    do not fit, or hold NaN or infinity.
    """
    from safetensors import SafetensorError

    from tadpole.models.adapters import has_adapters, load_adapters
    from tadpole.models.loading import first_not_finite

    fresh = None
    try:
        if has_adapters(model):
            load_adapters(model, checkpoint / ADAPTER)
        else:
            fresh = type(model).from_pretrained(checkpoint, dtype=model.dtype)
    except (ModelError, OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TrainerError(f"{checkpoint} cannot be loaded: {reason}; {_BEFORE}") from None
    wrong = first_not_finite(model if fresh is None else fresh)
    if wrong is not None:
        raise TrainerError(
            f"the weights in {checkpoint} are not all finite, first {wrong}: {_BEFORE}"
        )
    if fresh is not None:
        model.load_state_dict(fresh.state_dict())
