"""Which groups an update gets from verl's real queue, with invented delays.

The queue, the buffer and its rules are verl's; limits and metric are those that we ask for.
"""

import importlib.util

import pytest

from tadpole.config import load
from tadpole.engines.verl.overrides import overrides
from tadpole.engines.verl.places import RAW
from tests.engines.patience import PATIENT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None,
        reason="verl is not installed: pip install 'tadpole[verl]' in an environment of its own",
    ),
]
MIXED, SOLVED = (1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def config():
    from tadpole.engines.verl.dryrun import composed

    small = ["transfer_queue.backend.SimpleStorage.num_data_storage_units=1"]
    return composed([*overrides(load({"train.max_lag": "3"}, preset="verl-report")), *small])


@pytest.fixture(scope="module")
def queue(config):
    import ray
    import transfer_queue

    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        ray.init(num_cpus=8, include_dashboard=False)
        transfer_queue.init(config.transfer_queue)
        yield transfer_queue
        transfer_queue.close()
        ray.shutdown()


class Groups:
    """Puts groups into the queue as agent-loop workers do, and counts what is asked for anew."""

    def __init__(self, queue, config):
        from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

        sampler = config.trainer.v1.sampler
        self.queue, self.step, self.refilled = queue, 1, 0
        self.buffer = ReplayBufferAsync(
            trainer_mode="tadpole",
            trainer_config={},
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs={},
            poll_interval=0.05,
            refill_fn=self.refill,
            filter_groups_metric=config.algorithm.filter_groups.metric,
        )

    def put(self, name, drawn, raws=MIXED, status="finished"):
        import torch
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        tag = {"is_prompt": True, "status": status, "global_steps": drawn}
        self.queue.kv_batch_put(keys=[name], partition_id="train", tags=[tag])
        rows = [
            # Lengths differ, so that shaped rewards would differ where raw ones do not.
            {"responses": torch.ones(k + 1, dtype=torch.int64),
             "extra_fields": {"reward_extra_info": {RAW: raw}}}
            for k, raw in enumerate(raws)
        ]  # fmt: skip
        if rows:
            self.queue.kv_batch_put(
                keys=[f"{name}_{k}_0" for k in range(len(rows))],
                partition_id="train",
                fields=list_of_dict_to_tensordict(rows),
                tags=[{"status": "success"} for _ in rows],
            )

    def refill(self, count):
        for _ in range(count):
            self.refilled += 1
            self.put(f"fresh{self.refilled}", self.step)

    def sample(self, step, count):
        self.step = step
        batch, figures = self.buffer.sample(step, "train", count)
        return sorted({key.split("_")[0] for key in batch.keys}), figures


def test_what_lags_too_far_is_dropped_and_drawn_again(queue, config):
    groups = Groups(queue, config)
    for name, drawn in (("two", 2), ("three", 3), ("five", 5)):
        groups.put(name, drawn)
    chosen, figures = groups.sample(6, 3)
    # Update 6 trains version 5. What was drawn for update 3 began at version 2: lag 3, the bound.
    assert chosen == ["five", "fresh1", "three"]
    assert figures["training/off_policy/evicted_samples"] == 1
    assert groups.refilled == 1


def test_raw_rewards_decide_which_groups_have_signal(queue, config):
    groups = Groups(queue, config)
    groups.put("solved", 1, SOLVED)
    groups.put("mixed", 1)
    groups.put("broken", 1, (), status="failure")
    chosen, figures = groups.sample(1, 3)
    assert chosen == ["fresh1", "fresh2", "mixed"]
    assert figures["training/filter_groups/evicted_samples"] == 1
    assert figures["training/rollout_failure/evicted_samples"] == 1
    assert figures["_dapo_filtered_reward_counts"] == {1.0: 1}


def test_a_slow_group_is_not_waited_for_and_comes_later(queue, config):
    groups = Groups(queue, config)
    groups.put("slow", 1, (), status="running")
    groups.put("quick", 1)
    assert groups.sample(1, 1)[0] == ["quick"]
    groups.put("slow", 1)  # ends while update 4 is due: lag 3
    groups.put("next", 4)
    assert groups.sample(4, 1)[0] == ["slow"]
    assert groups.sample(4, 1)[0] == ["next"]
