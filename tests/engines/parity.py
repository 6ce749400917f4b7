"""One gradient of verl's FSDP2 actor, as a program: ``python -m tests.engines.parity DIRECTORY``.

Reads ``rows.pt`` (see the test) and ``model/`` there, writes ``verl.pt``: loss, gradients, sums;
of trajectories one by one, and of several packed in one row.
"""

import os
import sys
from pathlib import Path

import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker

from tadpole.engines.verl.places import DROPPED, GAPS, TOKENS

OVERRIDES = (
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.policy_loss.loss_mode=tadpole_dppo",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=256",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.actor.freeze_vision_tower=True",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype=fp32",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=True",
    "actor_rollout_ref.rollout.name=tinycpu",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=tinycpu",
    "trainer.device=cpu",
)


def batch(rows: list[dict]) -> TensorDict:
    """Trajectories as verl's queue hands them to the actor: nested tensors, no padding."""

    def nested(name, dtype):
        return torch.nested.as_nested_tensor(
            [torch.tensor(row[name], dtype=dtype) for row in rows], layout=torch.jagged
        )

    whole = [{**row, "input_ids": row["prompts"] + row["responses"]} for row in rows]
    for row in whole:
        row["position_ids"] = list(range(len(row["input_ids"])))
        row["advantages"] = [row["advantage"]] * len(row["responses"])
    rows = whole
    fields = {name: nested(name, torch.int64)
              for name in ("input_ids", "position_ids", "prompts", "responses")}  # fmt: skip
    fields |= {name: nested("mask", torch.int64) for name in ("response_mask", "loss_mask")}
    fields |= {name: nested(name, torch.float32) for name in ("old_log_probs", "advantages")}
    return TensorDict(fields, batch_size=len(rows))


def main(directory: Path) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0",
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}.items():  # fmt: skip
        os.environ.setdefault(name, value)
    with initialize_config_module("verl.trainer.config", version_base=None):
        path = f"actor_rollout_ref.model.path={directory / 'model'}"
        config = compose("ppo_trainer", [*OVERRIDES, path])
    worker = ActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
    worker.init_model()
    rows = torch.load(directory / "rows.pt")
    alone = gradient(worker, rows, use_dynamic_bsz=False, micro_batch_size_per_gpu=1)
    packed = gradient(worker, rows, use_dynamic_bsz=True, max_token_len_per_gpu=256)
    torch.save({"alone": alone, "packed": packed}, directory / "verl.pt")


def gradient(worker: ActorRolloutRefWorker, rows: list[dict], **sizes: object) -> dict:
    """Loss, gradients and sums of one update, in micro-batches of ``sizes``."""
    engine, data = worker.actor.engine, batch(rows)
    tu.assign_non_tensor(
        data, temperature=1.0, calculate_entropy=False, use_remove_padding=True,
        use_fused_kernels=False, global_batch_size=len(data), **sizes,
    )  # fmt: skip
    with engine.train_mode():
        engine.optimizer_zero_grad()
        out = engine.forward_backward_batch(data, worker.loss_fn)
        slopes = {
            name: parameter.grad.full_tensor().clone()
            for name, parameter in engine.module.named_parameters()
            if parameter.grad is not None
        }
    sums = {name: out["metrics"][name] for name in (GAPS, DROPPED, TOKENS)}
    sums = {name: sum(getattr(value, "values", value)) for name, value in sums.items()}
    return {"loss": float(sum(out["loss"])), "slopes": slopes, "sums": sums}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
