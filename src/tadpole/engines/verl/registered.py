"""Asking a process of a cluster whether verl loaded our loss there.

verl loads plugins silently, and goes on without those that fail. This module does not import the
loss: that would register it, and answer nothing.
"""

from typing import Any

from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

from tadpole.engines.verl.places import LOSS


def missing_in(worker: Any = None) -> str:
    """Why a worker cannot compute our loss, in one line; empty where it can. Runs inside it."""
    if LOSS in POLICY_LOSS_REGISTRY:
        return ""
    return f"the loss {LOSS} is not registered in {type(worker).__name__}: reinstall tadpole there"
