"""The update step of TRL's GRPO trainer on trajectories that are given to it.

Everything is TRL's own (padding, chunked head, loss, accumulation, optimizer) but the generation,
in whose place the frozen trajectories stand. Needs the extra ``bench``.
"""

import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tadpole.rl.batch import Sample


class Clock(TrainerCallback):
    """Seconds of each optimizer step, its micro-batches included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop it."""
        self.seconds.append(time.perf_counter() - self._start)


def update_seconds(
    model: Any,
    tokenizer: Any,
    samples: Sequence[Sample],
    budget: int,
    dtype: torch.dtype,
    *,
    steps: int,
) -> list[float]:
    """Seconds of each of ``steps`` updates on ``samples``.

    ``budget``: tokens of a micro-batch, padding included, as for our learner.
    """
    inputs = _inputs(samples)
    width = inputs["prompt_ids"].shape[1] + inputs["completion_ids"].shape[1]
    rows = max(n for n in range(1, len(samples) + 1) if n * width <= max(budget, width))
    while len(samples) % rows:
        rows -= 1

    class Frozen(GRPOTrainer):
        def _generate_and_score_completions(self, _: Any) -> dict[str, Any]:
            return dict(inputs)

    with tempfile.TemporaryDirectory() as scratch:
        settings = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=len(samples) // rows,
            num_generations=len(samples) // 2,
            learning_rate=1e-6,
            adam_beta2=0.98,
            weight_decay=0.1,
            max_grad_norm=1.0,
            lr_scheduler_type="constant",
            beta=0.0,
            loss_type="dapo",  # over all tokens of the update, as ours
            max_steps=steps,
            gradient_checkpointing=False,  # as ours: memory and time are both compared
            bf16=dtype is torch.bfloat16,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_strategy="no",
        )
        clock = Clock()
        trainer = Frozen(
            model=model,
            processing_class=tokenizer,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=settings,
            train_dataset=Dataset.from_list([{"prompt": "x"}] * len(samples)),
            callbacks=[clock],
        )
        trainer.train()
    return clock.seconds


def _inputs(samples: Sequence[Sample]) -> dict[str, Any]:
    """The trajectories as TRL lays them out: prompts padded left, the rest padded right."""
    prompts = [list(sample.prefix) for sample in samples]
    rests = [
        (t.ids[len(p) :], t.loss_mask[len(p) :], t.logprobs[len(p) :])
        for p, t in zip(prompts, (sample.tokens for sample in samples), strict=True)
    ]
    left, right = max(map(len, prompts)), max(len(ids) for ids, *_ in rests)

    def after(values: Sequence[float], filler: float = 0) -> list[float]:
        return [*values, *[filler] * (right - len(values))]

    tool_mask = torch.tensor([after(mask) for _, mask, _ in rests], dtype=torch.long)
    return {
        "prompt_ids": torch.tensor([[0] * (left - len(p)) + p for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (left - len(p)) + [1] * len(p) for p in prompts]),
        "completion_ids": torch.tensor([after(ids) for ids, *_ in rests], dtype=torch.long),
        "completion_mask": torch.tensor([after([1] * len(ids)) for ids, *_ in rests]).long(),
        "tool_mask": tool_mask,
        "old_per_token_logps": torch.tensor([after(logps) for *_, logps in rests]),
        "advantages": torch.tensor([sample.advantage for sample in samples]),
        "num_items_in_batch": tool_mask.sum(),
    }
