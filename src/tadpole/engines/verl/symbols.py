"""Every name of verl that is used here, and what is relied on: the contract with 0.9.1.

Where one moves, :func:`moved` says which, in words, before a climb is tried on another version.
Overrides are not listed: verl's own validation names those that it does not know.
"""

import importlib.util
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tadpole.engines.verl.places import LATEST

VERSION = "0.9.1"


@dataclass(frozen=True)
class Symbol:
    """A name in a module of verl. ``takes``: its parameters; ``holds``: attributes or fields."""

    module: str
    name: str
    takes: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Word:
    """A key or a file name that a module of verl writes or reads, and we read or write."""

    module: str
    text: str


LOOP = "verl.experimental.agent_loop.agent_loop"
BASE = "verl.trainer.ppo.v1.trainer_base"
SERVER = "verl.workers.rollout.llm_server"
BUFFER = "verl.trainer.ppo.v1.replay_buffer"
WORKER = "verl.trainer.ppo.v1.agent_loop_tq"
SEPARATE = "verl.trainer.ppo.v1.trainer_separate_async"
ALGOS = "verl.trainer.ppo.core_algos"
SYMBOLS = (
    Symbol(
        LOOP,
        "AgentLoopBase",
        takes=("trainer_config", "server_manager", "tokenizer"),
        holds=("run",),
    ),
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
    Symbol(BASE, "PPOTrainer._submit_batch_to_rollout", takes=("batch",)),
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
        SERVER,
        "FullyAsyncLLMServerClient.generate",
        takes=("request_id", "prompt_ids", "sampling_params"),
    ),
    Symbol("verl.workers.config", "ActorConfig", holds=("clip_ratio_high", "global_batch_info")),
    Symbol("transfer_queue", "kv_batch_get", takes=("keys", "partition_id", "select_fields")),
    Symbol("transfer_queue", "kv_batch_put", takes=("keys", "partition_id", "fields")),
    Symbol("transfer_queue", "KVBatchMeta", holds=("keys", "tags", "partition_id")),
    Symbol(
        "verl.workers.rollout.replica",
        "TokenOutput",
        holds=("token_ids", "log_probs", "extra_fields"),
    ),
)
WORDS = (
    Word("verl", '"verl.plugins"'),
    # What an agent loop is handed, and how its rows are named.
    Word(LOOP, "agent_loop.run(sampling_params, **kwargs)"),
    *(Word(WORKER, word) for word in ("session_id=i", '"global_steps"', 'prompt["uid"]')),
    Word(WORKER, 'f"{uid}_{session_id}_{i}"'),
    # How prompts are dealt to agent loops.
    Word(WORKER, "prompts.chunk(len(self.agent_loop_workers))"),
    Word(BASE, "self.agent_loop_manager.generate_sequences(batch)"),
    *(Word(WORKER, f'"{word}_global_steps"') for word in ("min", "max")),
    Word("verl.utils.dataset.rl_dataset", '"extra_info"'),
    # What an engine says of a turn.
    *(Word(SERVER, word) for word in ('"max_tokens"', 'extra_fields["min_global_steps"]')),
    # What the loss is called with.
    *(
        Word("verl.workers.utils.losses", word)
        for word in (
            *("old_log_prob=", "log_prob=", "advantages=", "response_mask=", "loss_agg_mode="),
            *("config=", "rollout_is_weights=", 'global_batch_info["dp_size"]'),
            'global_batch_info["batch_num_tokens"]',
        )
    ),
    # What a batch and the metrics of an update hold.
    *(Word(BASE, word) for word in ('"rollout_log_probs"', '"is_padding"', '"actor/"')),
    *(Word("verl.workers.engine_workers", f'final_metrics["{w}"]') for w in ("loss", "grad_norm")),
    *(Word(BUFFER, f"/{reason}/evicted_samples") for reason in ("off_policy", "rollout_failure")),
    Word(BUFFER, '"reward_extra_info"'),
    # Where its checkpoints are.
    *(Word(BASE, word) for word in (LATEST, "global_step_", '"actor"')),
    Word("verl.utils.checkpoint.fsdp_checkpoint_manager", '"huggingface"'),
)


def moved(symbols: Sequence[Symbol] = SYMBOLS, words: Sequence[Word] = WORDS) -> list[str]:
    """What is not where, or not as, it is used here: a line each. Empty where all is well."""
    found = [*map(_wrong, symbols), *map(_unsaid, words)]
    return [line for line in found if line]


def _unsaid(word: Word) -> str:
    try:
        spec = importlib.util.find_spec(word.module)
    except ImportError as error:
        return f"{word.module}: the module cannot be found ({error})"
    if spec is None or not spec.origin:
        return f"{word.module} is gone"
    said = word.text in Path(spec.origin).read_text(encoding="utf-8")
    return "" if said else f"{word.module} does not say {word.text} any more"


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
    fields = {*getattr(found, "model_fields", ()), *getattr(found, "__dataclass_fields__", ())}
    for name in symbol.holds:
        if name not in fields and not hasattr(found, name):
            return f"{where} has no {name!r} any more"
    return ""
