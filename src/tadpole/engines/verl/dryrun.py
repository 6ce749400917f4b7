"""Composing and validating a list of overrides by verl itself. Starts nothing."""

import contextlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from tadpole.engines.verl.places import MODE


def validated(asked: Sequence[str]) -> str:
    """Why verl refuses the list, in one line; empty where it takes it."""
    if importlib.util.find_spec("verl") is None:
        return "not validated: verl is not installed here (pip install 'tadpole[verl]')"
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it reports by printing
            composed(asked)
    except Exception as error:  # Hydra, OmegaConf, assertions: whatever it says
        return f"verl refuses the configuration: {' '.join(str(error).split())[:400]}"
    return ""


def composed(asked: Sequence[str]) -> Any:
    """verl's whole configuration. Raises what Hydra or verl raise."""
    from hydra import compose, initialize_config_module
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import validate_config

    from tadpole.engines.verl import trainer

    assert get_trainer_cls(MODE) is trainer.Trainer
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", list(asked))
    validate_config(config, need_reference_policy(config), need_critic(config))
    return config
