"""verl's asynchronous trainer with our advantages, our rows, and our reasons to stop."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.workers.utils.padding import response_to_nested

from tadpole.config import Config, saved
from tadpole.engines.verl import rows
from tadpole.engines.verl.advantages import Episode, advantages_of
from tadpole.engines.verl.places import MODE, RAW, Names, Places
from tadpole.engines.verl.registered import missing_in
from tadpole.engines.verl.rolled import Rolled
from tadpole.engines.verl.workers import rotated
from tadpole.errors import TrainerError
from tadpole.rl.metrics import TABLE
from tadpole.rundir import CONFIG, RunDir
from tadpole.trace import Attempt

MOST_DRAWS = 20  # times as many groups as an update needs: more, and no policy learns from them


class Climbing:
    """Mixed into a V1 trainer of verl: overrides what is private there (see ``symbols``)."""

    config: Any
    global_steps: int
    actor_rollout_wg: Any
    agent_loop_manager: Any

    def __init__(self, config: Any):
        self.run = RunDir.open(config.tadpole.run)
        self.ours: Config = saved(self.run.path / CONFIG)
        self.names = Names.model_validate_json(Places.of(self.run.path).names.read_bytes())
        self._rolled = Rolled(self.run, int(config.actor_rollout_ref.rollout.n))
        self._drawn = 0
        self._free = time.monotonic()  # since when the learner waits for episodes
        super().__init__(config)  # type: ignore[call-arg]

    def init(self) -> None:
        """As verl's; raises TrainerError where a worker has not loaded our loss."""
        super().init()  # type: ignore[misc]
        answers = ray.get(
            [worker.__ray_call__.remote(missing_in) for worker in self.actor_rollout_wg.workers]
        )
        for missing in filter(None, answers):
            raise TrainerError(missing)
        self._free = time.monotonic()

    def _add_prompts_to_generate(self, num_prompts: int) -> int:
        """As verl's; raises TrainerError instead of drawing for ever."""
        self._drawn += num_prompts
        if self._drawn > MOST_DRAWS * self.ours.train.groups:
            raise TrainerError(
                f"{self._drawn} groups were drawn for update {self.global_steps} and too few can "
                "be used: their rewards do not differ, or their boxes fail (tadpole doctor); "
                "rollouts.jsonl says which, and other tasks take another --run.dir"
            )
        added: int = super()._add_prompts_to_generate(num_prompts)  # type: ignore[misc]
        return added

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        """As verl's, with other workers first each time."""
        added: int = super()._submit_batch_to_rollout(batch)  # type: ignore[misc]
        manager = self.agent_loop_manager
        manager.agent_loop_workers = rotated(manager.agent_loop_workers, added)
        return added

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Ours, on shaped rewards, per group of raw rewards that differ; 0 elsewhere."""
        train = self.ours.train
        values = advantages_of(
            self._episodes(batch),
            train,
            update=self.global_steps,
            seed=self.ours.run.seed * 1000 + train.seed,
        )
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
        )
        mask = data["response_mask"]
        padded = torch.nested.to_padded_tensor(mask, 0).float() * torch.tensor(values)[:, None]
        data["advantages"] = response_to_nested(padded, mask)
        data["returns"] = data["advantages"]
        return tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=data.select("advantages", "returns"),
        )

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """As verl's, and a row of it before any checkpoint. Raises TrainerError to stop."""
        found = [e for e in self._episodes(batch) if e.attempt is not None]
        attempts = [e.attempt for e in found if e.attempt is not None]
        update, started = self.global_steps, time.monotonic()
        alike = self._rolled.without_signal()
        with ThreadPoolExecutor(1) as pool:
            reading = rows.begun(pool, self.run, attempts, update)
            batch = super()._update_actor(batch, metrics)  # type: ignore[misc]
            trained = reading.result()
        row = rows.row_of(
            attempts,
            trained,
            metrics,
            update=update,
            fingerprint=self.names.of_version(update),
            groups=len({episode.group for episode in found}),
            alike=alike,
        )
        ended = time.monotonic()
        seconds = {"seconds_rollout": started - self._free, "seconds_update": ended - started}
        row, self._free = row.model_copy(update=seconds), ended
        self._refuse(row.mean_abs_pq or 0.0, row.dropped_share)
        self.run.append(TABLE, row)
        self._drawn = 0
        return batch

    def _refuse(self, gap: float, dropped: float) -> None:
        """The learner's limits, asked once the step is taken and before it is kept."""
        train = self.ours.train
        if gap > train.max_mean_gap:
            raise TrainerError(
                f"mean |p - q| is {gap:.4f}, above {train.max_mean_gap}: the engine samples from "
                "another distribution than the one that is trained (--train.max_mean_gap)"
            )
        if dropped > train.max_dropped_share:
            raise TrainerError(
                f"{dropped:.0%} of the tokens are outside the trust region, above "
                f"{train.max_dropped_share:.0%} (--train.max_dropped_share)"
            )

    def _episodes(self, batch: Any) -> list[Episode]:
        """The rows of a batch in its order."""
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
        )
        found = []
        for key, tag, extra in zip(batch.keys, batch.tags, data["extra_fields"], strict=True):
            fields = getattr(extra, "data", extra)
            padding = tag.get("is_padding", False)
            attempt = None if padding else Attempt.model_validate_json(fields["attempt"])
            if attempt is not None:
                assert RAW in fields["reward_extra_info"]
            found.append(Episode(key.split("_")[0], attempt))
        return found


@register_trainer(MODE)
class Trainer(Climbing, PPOTrainerSeparateAsync):  # type: ignore[misc]
    """Rollout and training on GPUs of their own, overlapping."""

    def init(self) -> None:
        """As verl's, whose 0.9.1 trips over a line of its own log in this very layout.

        It says ``logger.info(..., flush=True)``, which is a TypeError where INFO is logged.
        """
        logging.getLogger(PPOTrainerSeparateAsync.__module__).setLevel(logging.WARNING)
        super().init()
