"""A policy of a run in memory: weights, dialogue, and the in-process sampler."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from tadpole.config import Config
from tadpole.leaf.calls import format_of
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.models.embedded import embedded_policy
from tadpole.models.inprocess import InProcessPolicy
from tadpole.models.loading import Loaded, load_model, pick_device, pick_dtype
from tadpole.models.memory import give_back_all
from tadpole.settings import EMBEDDED


@dataclass(frozen=True)
class Prepared:
    """What episodes and updates need of a policy. Close it when done."""

    loaded: Loaded
    dialogue: Dialogue
    policy: InProcessPolicy
    dtype: torch.dtype  # of the rollout, and of the learner's autocast

    def close(self) -> None:
        """End the sampling thread. Idempotent."""
        self.policy.close()


def prepare_policy(
    config: Config, cache: Path, weights: Path | None = None, apart: bool = False
) -> Prepared:
    """Load ``weights`` (a directory), or the configuration's model where it is None.

    ``apart``: the policy has weights of its own, so that the model can be trained meanwhile.
    Raises ModelError, one line, where that is no model or cannot be fetched.
    """
    give_back_all()  # the policy and the optimizer of the stage before
    # Ours tells how far it is.
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    asked = config.policy
    torch.set_num_threads(asked.threads or len(os.sched_getaffinity(0)))
    device = pick_device(asked.device)
    dtype = pick_dtype(asked.dtype.value, device)
    location: Path | str | None = weights
    if location is None:
        location = embedded_policy(cache) if asked.model == EMBEDDED else asked.model
    loaded = load_model(location, device)
    call_format = format_of(loaded.tokenizer.chat_template or "")
    profile = make_profile(config.leaf.profile, call_format)
    dialogue = Dialogue(loaded.tokenizer, call_format, profile)
    policy = InProcessPolicy(
        loaded.model,
        end_ids=sorted(dialogue.end_ids),
        fingerprint=loaded.fingerprint,
        dtype=dtype,
        slots=config.run.concurrency,
        max_context=config.leaf.max_context,
        apart=apart,
    )
    return Prepared(loaded, dialogue, policy, dtype)
