"""A policy of a run in memory: weights, dialogue, and whoever samples it."""

import os
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

import torch
import transformers

from tadpole.config import Config
from tadpole.leaf.calls import format_of
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.models.adapters import add_adapters, has_adapters, load_adapters, save_adapters
from tadpole.models.embedded import embedded_policy
from tadpole.models.engines.engine import Engine
from tadpole.models.engines.policy import ServerPolicy
from tadpole.models.engines.sglang import SGLang
from tadpole.models.engines.vllm import VLLM
from tadpole.models.inprocess import InProcessPolicy
from tadpole.models.loading import Loaded, load_model, pick_device, pick_dtype
from tadpole.models.location import weights_hash
from tadpole.models.memory import give_back_all
from tadpole.progress import Progress
from tadpole.rl.checkpoint import ADAPTER
from tadpole.settings import EMBEDDED, EngineKind

SERVED_AS = "policy"  # the name under which a vLLM server serves the model


class Trains(Enum):
    """What of a model an update changes."""

    NOTHING = auto()
    WEIGHTS = auto()  # all of them
    ADAPTERS = auto()  # low-rank ones beside them (``train.lora``)


@dataclass(frozen=True)
class Prepared:
    """What episodes and updates need of a policy. Close it when done."""

    loaded: Loaded
    dialogue: Dialogue
    policy: InProcessPolicy | ServerPolicy
    dtype: torch.dtype  # of the rollout, and of the learner's autocast

    def close(self) -> None:
        """End the sampling. Idempotent."""
        self.policy.close()


def prepare_policy(
    config: Config,
    cache: Path,
    weights: Path | None = None,
    apart: bool = False,
    progress: Progress | None = None,
    *,
    trains: Trains = Trains.NOTHING,
) -> Prepared:
    """Load ``weights`` (a directory), or the configuration's model where it is None.

    ``apart``: the policy has weights of its own, so that the model can be trained meanwhile.
    ``trains``: what an update is to change. Servers that are handed adapters hold the
    configuration's model all along: of ``weights`` they get the adapters, and where nothing is
    trained some that change nothing. Raises ModelError, one line, where that is no model or cannot
    be fetched.
    """
    give_back_all()  # the policy and the optimizer of the stage before
    # Ours tells how far it is.
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    asked = config.policy
    torch.set_num_threads(asked.threads or len(os.sched_getaffinity(0)))
    device = pick_device(asked.device)
    dtype = pick_dtype(asked.dtype.value, device)
    hands_adapters = asked.engine is not EngineKind.INPROCESS and config.train.lora.rank > 0
    if hands_adapters:
        trains = Trains.ADAPTERS
    location: Path | str | None = None if hands_adapters else weights
    if location is None:
        location = embedded_policy(cache, progress) if asked.model == EMBEDDED else asked.model
    # Where a GPU rounds anyway, what is not trained need not be held more exactly.
    coarse = device.startswith("cuda") and trains is not Trains.WEIGHTS
    loaded = load_model(location, device, dtype if coarse else torch.float32)
    if trains is Trains.ADAPTERS:
        lora = config.train.lora
        # As all of a climb that is drawn, see Job.seed.
        seed = config.run.seed * 1000 + config.train.seed
        add_adapters(loaded.model, lora.rank, lora.alpha, seed)
    if hands_adapters and weights is not None:
        load_adapters(loaded.model, weights / ADAPTER)
        loaded = replace(loaded, fingerprint=weights_hash(weights))
    call_format = format_of(loaded.tokenizer.chat_template or "")
    profile = make_profile(config.leaf.profile, call_format)
    dialogue = Dialogue(loaded.tokenizer, call_format, profile)
    policy: InProcessPolicy | ServerPolicy
    if asked.engine is EngineKind.INPROCESS:
        policy = InProcessPolicy(
            loaded.model,
            end_ids=sorted(dialogue.end_ids),
            fingerprint=loaded.fingerprint,
            dtype=dtype,
            slots=config.run.concurrency,
            max_context=config.leaf.max_context,
            apart=apart,
            repeatable=asked.repeatable,
        )
    else:
        policy = _served(config, loaded, sorted(dialogue.end_ids))
    return Prepared(loaded, dialogue, policy, dtype)


def _served(config: Config, loaded: Loaded, end_ids: list[int]) -> ServerPolicy:
    """Rollout servers that sample the weights of ``loaded``, as they are at each renewal."""
    asked = config.policy

    adapter = has_adapters(loaded.model)

    def write(directory: Path) -> None:
        if adapter:
            save_adapters(loaded.model, directory)
        else:
            loaded.model.save_pretrained(directory)
            loaded.tokenizer.save_pretrained(directory)

    engines: list[Engine] = [
        SGLang(url, adapter=adapter)
        if asked.engine is EngineKind.SGLANG
        else VLLM(url, model=SERVED_AS, adapter=adapter)
        for url in asked.urls
    ]
    return ServerPolicy(
        engines,
        write=write,
        directory=Path(asked.engine_dir or Path(config.run.dir) / "engine"),
        end_ids=end_ids,
        fingerprint=loaded.fingerprint,
        max_context=config.leaf.max_context,
    )
