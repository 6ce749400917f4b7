"""Every name of verl that is used here, and what is relied on: the contract with 0.9.1.

Where one moves, :func:`moved` says which, in words, before a climb is tried on another version.
"""

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VERSION = "0.9.1"


@dataclass(frozen=True)
class Symbol:
    """A name in a module of verl. ``takes``: its parameters; ``holds``: attributes or fields."""

    module: str
    name: str
    takes: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()


LOOP = "verl.experimental.agent_loop.agent_loop"
BASE = "verl.trainer.ppo.v1.trainer_base"
SEPARATE = "verl.trainer.ppo.v1.trainer_separate_async"
ALGOS = "verl.trainer.ppo.core_algos"
SYMBOLS = (
    Symbol(LOOP, "AgentLoopBase", holds=("run",)),
    Symbol(
        LOOP,
        "AgentLoopOutput",
        holds=(
            *("prompt_ids", "response_ids", "response_mask", "response_logprobs"),
            *("reward_score", "num_turns", "metrics", "extra_fields"),
        ),
    ),
    Symbol(LOOP, "AgentLoopMetrics"),
    Symbol(ALGOS, "POLICY_LOSS_REGISTRY"),
    Symbol(ALGOS, "register_policy_loss", takes=("name",)),
    Symbol(BASE, "register_trainer", takes=("name",)),
    Symbol(BASE, "PPOTrainer", takes=("config",)),
    Symbol(BASE, "PPOTrainer.init"),
    Symbol(BASE, "PPOTrainer._add_prompts_to_generate", takes=("num_prompts",)),
    Symbol(BASE, "PPOTrainer._compute_advantage", takes=("batch", "metrics")),
    Symbol(BASE, "PPOTrainer._update_actor", takes=("batch", "metrics")),
    Symbol(SEPARATE, "PPOTrainerSeparateAsync", takes=("config",)),
    Symbol("verl.trainer.ppo.v1", "get_trainer_cls", takes=("name",)),
    Symbol("verl.trainer.main_ppo", "TaskRunnerV1", holds=("__ray_metadata__",)),
    Symbol("verl.trainer.main_ppo", "run_ppo", takes=("config", "task_runner_class")),
    Symbol("verl.trainer.ppo.utils", "need_critic", takes=("config",)),
    Symbol("verl.trainer.ppo.utils", "need_reference_policy", takes=("config",)),
    Symbol(
        "verl.utils.config",
        "validate_config",
        takes=("config", "use_reference_policy", "use_critic"),
    ),
    Symbol("verl.utils.device", "auto_set_device", takes=("config",)),
    Symbol("verl.workers.utils.padding", "response_to_nested", takes=("tensor", "response_mask")),
    Symbol(
        "verl.workers.rollout.llm_server",
        "LLMServerClient.generate",
        takes=("request_id", "prompt_ids", "sampling_params"),
    ),
    Symbol(
        "verl.workers.rollout.replica",
        "TokenOutput",
        holds=("token_ids", "log_probs", "extra_fields"),
    ),
)


def moved(symbols: Sequence[Symbol] = SYMBOLS) -> list[str]:
    """What is not where, or not as, it is used here: a line each. Empty where all is well."""
    return [line for symbol in symbols if (line := _wrong(symbol))]


def _wrong(symbol: Symbol) -> str:
    where = f"{symbol.module}.{symbol.name}"
    try:
        found: Any = importlib.import_module(symbol.module)
    except ImportError as error:
        return f"{where}: the module cannot be imported ({error})"
    for part in symbol.name.split("."):
        if not hasattr(found, part):
            return f"{where} is gone"
        found = getattr(found, part)
    parameters = set(inspect.signature(found).parameters) if symbol.takes else set()
    for name in symbol.takes:
        if name not in parameters:
            return f"{where} does not take {name!r} any more: {sorted(parameters)}"
    fields = set(getattr(found, "model_fields", ()))
    for name in symbol.holds:
        if name not in fields and not hasattr(found, name):
            return f"{where} has no {name!r} any more"
    return ""
