"""One configuration as the overrides of verl's: every line says what it stands for in ours."""

import json
from typing import Any

from tadpole.config import Config
from tadpole.engines.cluster import USED
from tadpole.engines.verl.places import GPUS, LOOP, LOSS, MODE, RAW, Places
from tadpole.errors import ConfigError
from tadpole.rundir import cache_dir
from tadpole.settings import EngineKind

SAVED = ("model", "optimizer", "extra", "hf_model")


def overrides(config: Config, model: str = "") -> list[str]:
    """The whole list, as ``key=value``. ``model``: the weights to start from.

    Raises ConfigError where ours asks for what verl's trainer cannot do.
    """
    _refuse(config)
    places = Places.of(config.run.dir)
    settings: dict[str, Any] = {
        **_data(config, places),
        **_algorithm(),
        **_actor(config, model or config.policy.model),
        **_rollout(config, places),
        **_trainer(config, places),
    }
    lines = {key: f"{key}={_written(value)}" for key, value in settings.items()}
    for line in config.cluster.overrides:
        key, equals, _ = line.partition("=")
        if not equals:
            raise ConfigError(f"cluster.overrides: {line!r} is not KEY=VALUE")
        lines[key] = line
    return list(lines.values())


def _refuse(config: Config) -> None:
    if config.leaf.compaction_window:
        raise ConfigError("leaf.compaction_window cannot be used with --engine verl: leave it at 0")
    if config.train.lora.rank:
        raise ConfigError("--engine verl trains all weights: leave train.lora.rank at 0")
    if config.sampling.top_p != 1 or config.sampling.top_k:
        raise ConfigError("--engine verl trains on what is sampled at top_p 1 without top_k")


def _data(config: Config, places: Places) -> dict[str, Any]:
    prompt, response = lengths(config)
    return {
        "data.train_files": str(places.tasks),
        "data.val_files": str(places.tasks),  # read, never asked: nothing is validated there
        "data.train_batch_size": config.train.groups,
        "data.gen_batch_size": 1,
        "data.max_prompt_length": prompt,
        "data.max_response_length": response,
        "data.return_raw_chat": True,
        "data.filter_overlong_prompts": False,
        "data.shuffle": True,
        "data.seed": config.run.seed * 1000 + config.train.seed,
        "data.dataloader_num_workers": 0,
    }


def lengths(config: Config) -> tuple[int, int]:
    """(tokens before the first generated one, tokens after that): together the whole context."""
    prompt = min(8192, config.leaf.max_context // 2)
    return prompt, config.leaf.max_context - prompt


def _algorithm() -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": "grpo",  # our trainer computes the advantages (population std)
        "algorithm.use_kl_in_reward": False,
        "algorithm.rollout_correction.bypass_mode": True,  # old_log_prob is the rollout's own
        "algorithm.filter_groups.enable": True,
        "algorithm.filter_groups.metric": RAW,
        "reward.num_workers": 1,  # idle: episodes come graded, and verl starts 8 of these
        "trainer.critic_warmup": 0,
    }


def _actor(config: Config, model: str) -> dict[str, Any]:
    train, cluster = config.train, config.cluster
    at = "actor_rollout_ref.actor"
    return {
        "actor_rollout_ref.hybrid_engine": False,  # no rollout on the GPUs that train
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.use_fused_kernels": True,  # logits in chunks
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        f"{at}.strategy": "fsdp2",
        f"{at}.policy_loss.loss_mode": LOSS,
        f"{at}.clip_ratio_low": train.dppo_delta,
        f"{at}.clip_ratio_high": train.dppo_delta,
        f"{at}.loss_agg_mode": "token-mean",
        f"{at}.ppo_mini_batch_size": train.groups,
        f"{at}.ppo_epochs": 1,
        f"{at}.use_dynamic_bsz": True,
        f"{at}.ppo_max_token_len_per_gpu": -(-config.leaf.max_context // cluster.context_parallel),
        f"{at}.ulysses_sequence_parallel_size": cluster.context_parallel,
        f"{at}.freeze_vision_tower": True,
        f"{at}.use_kl_loss": False,
        f"{at}.entropy_coeff": 0,
        f"{at}.grad_clip": train.grad_clip,
        f"{at}.optim.lr": train.lr,
        f"{at}.optim.betas": list(train.betas),
        f"{at}.optim.weight_decay": train.weight_decay,
        f"{at}.optim.clip_grad": train.grad_clip,
        f"{at}.checkpoint.save_contents": list(SAVED),
    }


def _rollout(config: Config, places: Places) -> dict[str, Any]:
    cluster, train = config.cluster, config.train
    at = "actor_rollout_ref.rollout"
    return {
        f"{at}.name": cluster.rollout.value,
        f"{at}.nnodes": cluster.rollout_nodes,
        f"{at}.n_gpus_per_node": cluster.rollout_gpus,
        f"{at}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{at}.n": train.group_size,
        f"{at}.temperature": config.sampling.temperature,
        f"{at}.top_p": config.sampling.top_p,
        f"{at}.top_k": -1,
        f"{at}.calculate_log_probs": True,
        f"{at}.max_model_len": config.leaf.max_context + _margin(cluster.rollout),
        f"{at}.gpu_memory_utilization": USED,
        f"{at}.checkpoint_engine.backend": "nccl",
        f"{at}.agent.num_workers": cluster.workers,
        f"{at}.agent.agent_loop_config_path": str(places.loop),
        f"{at}.agent.default_agent_loop": LOOP,
    }


def _margin(rollout: EngineKind) -> int:
    """Tokens that verl's server keeps back at the end of a context.

    Without one more a turn that fills it comes back one short, as an answer that broke off.
    """
    return 1 if rollout is EngineKind.SGLANG else 0


def _trainer(config: Config, places: Places) -> dict[str, Any]:
    train, cluster = config.train, config.cluster
    sampler = "trainer.v1.sampler"
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": MODE,  # our subclass of separate_async
        "trainer.v1.separate_async.parameter_sync_step": 1,
        "trainer.v1.separate_async.num_warmup_batches": train.max_lag,
        # A group is dropped, and another drawn, once it would lag by as many updates as this.
        f"{sampler}.max_off_policy_threshold": train.max_lag + 1,
        f"{sampler}.max_off_policy_strategy": "drop",
        "transfer_queue.enable": True,
        "trainer.device": GPUS,
        "trainer.nnodes": cluster.train_nodes,
        "trainer.n_gpus_per_node": cluster.train_gpus,
        "trainer.total_training_steps": train.updates,
        "trainer.total_epochs": 100_000,  # the updates alone decide when it ends
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": train.checkpoint_every,
        "trainer.max_actor_ckpt_to_keep": 2,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": str(places.states),
        "trainer.project_name": "tadpole",
        "trainer.experiment_name": places.run.name,
        "trainer.logger": ["console"],
        "+tadpole.run": str(places.run),  # read by our trainer and our agent loop
        **_ray(config),
    }


def _ray(config: Config) -> dict[str, Any]:
    address = config.cluster.ray_address
    if not address:
        return {}
    # Workers of a cluster that runs already have its environment, not ours.
    cache = "+ray_kwargs.ray_init.runtime_env.env_vars.TADPOLE_CACHE"
    return {"+ray_kwargs.ray_init.address": address, cache: str(cache_dir())}


def _written(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(_written(one) for one in value) + "]"
    if isinstance(value, str) and not value.replace("_", "").replace("-", "").isalnum():
        return json.dumps(value)
    return str(value)
