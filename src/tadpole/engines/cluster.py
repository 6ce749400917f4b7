"""The settings of the machines: which trainer, on how many GPUs of what size. Ours, all of them."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from tadpole.settings import Count, EngineKind, Natural, Positive, Section, Share

USED = 0.85  # share of its own GPU that a rollout engine may fill


class Trainer(StrEnum):
    """Who makes the updates of a climb."""

    LOCAL = "local"  # the learner in this process
    VERL = "verl"  # a Ray cluster (pip install 'tadpole[verl]', in an environment of its own)


class ClusterConfig(Section):
    """The machines of a climb, and what a plan assumes of them."""

    trainer: Trainer = Trainer.LOCAL
    """local (the learner in this process) or verl (a Ray cluster); --engine is short for it."""
    train_nodes: Count = 1
    """Nodes with GPUs that train."""
    train_gpus: Count = 2
    """GPUs that train, on each of these nodes. Recipe: 2 of 8."""
    rollout_nodes: Count = 1
    """Nodes with GPUs that sample; they may be the same nodes."""
    rollout_gpus: Count = 6
    """GPUs that sample, on each of these nodes. Recipe: 6 of 8."""
    context_parallel: Count = 2
    """Training GPUs that share one sequence. Recipe: 2."""
    tensor_parallel: Count = 1
    """GPUs of one rollout engine. Recipe: 1."""
    rollout: EngineKind = EngineKind.VLLM
    """vllm, or sglang (which verl does not test with its asynchronous trainer)."""
    workers: Count = 8
    """Processes that play episodes, spread over the nodes; boxes run beside them."""
    ray_address: str = ""
    """Address of a running Ray cluster (auto, or HOST:PORT); empty to start one here."""
    overrides: tuple[str, ...] = ()
    """More overrides for verl as KEY=VALUE, instead of ours where they name the same; commas
    between."""
    gpu_gib: float = Field(default=0.0, ge=0)
    """Memory of one GPU in GiB, for the plan; 0: not known, and nothing is refused."""
    server_share: Share = 0.0
    """Share of a single GPU that the rollout server beside the learner takes; 0: it has its own."""
    gpu_tflops: Positive = 990.0
    """Dense bfloat16 teraflops of one GPU, for the plan (H100: 990, A100: 312, B200: 2250)."""
    train_efficiency: Share = 0.3
    """Share of these that training reaches. Assumed."""
    decode_rate: Positive = 2500.0
    """Tokens a second that one rollout GPU generates over all its episodes. Assumed."""
    mean_context: Natural = 0
    """Tokens of a mean episode, tool results included; 0: half of leaf.max_context. Assumed."""
    generated_share: Share = 0.3
    """Share of these that the policy generated. Assumed."""
    useful_share: Share = 0.6
    """Share of the groups whose rewards differ, so that an update can use them. Assumed."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.training % self.context_parallel:
            raise ValueError(
                f"{self.training} training GPUs cannot be split into groups of "
                f"context_parallel {self.context_parallel}"
            )
        if self.rollout_gpus % self.tensor_parallel:
            raise ValueError(
                f"rollout_gpus {self.rollout_gpus} cannot be split into engines of "
                f"tensor_parallel {self.tensor_parallel}"
            )
        if self.rollout is EngineKind.INPROCESS:
            raise ValueError("rollout is vllm or sglang")
        if self.useful_share == 0 or self.train_efficiency == 0:
            raise ValueError("useful_share and train_efficiency must be above 0")
        return self

    @property
    def training(self) -> int:
        """GPUs that train, on all nodes."""
        return self.train_nodes * self.train_gpus

    @property
    def sampling(self) -> int:
        """GPUs that sample, on all nodes."""
        return self.rollout_nodes * self.rollout_gpus
