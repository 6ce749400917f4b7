"""Our settings as verl's overrides, and how versions are named. Needs no verl."""

import pytest

from tadpole.config import load
from tadpole.engines.verl.overrides import lengths, overrides
from tadpole.engines.verl.places import Names, Places
from tadpole.errors import ConfigError
from tadpole.rl.metrics import UpdateRow

PRESETS = ["verl-report", "verl-8x80", "verl-2nodes"]


def as_dict(config, **kwargs):
    return dict(line.split("=", 1) for line in overrides(config, **kwargs))


def test_the_recipe_is_in_them():
    found = as_dict(load(preset="verl-report"), model="/models/leaf")
    wanted = {
        "actor_rollout_ref.actor.optim.lr": "1e-06",
        "actor_rollout_ref.actor.optim.betas": "[0.9,0.98]",
        "actor_rollout_ref.actor.optim.weight_decay": "0.1",
        "actor_rollout_ref.actor.policy_loss.loss_mode": "tadpole_dppo",
        "actor_rollout_ref.actor.clip_ratio_high": "0.2",
        "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
        "actor_rollout_ref.actor.use_kl_loss": "False",
        "actor_rollout_ref.actor.entropy_coeff": "0",
        "actor_rollout_ref.actor.freeze_vision_tower": "True",
        "actor_rollout_ref.model.path": '"/models/leaf"',
        "actor_rollout_ref.rollout.n": "8",
        "actor_rollout_ref.rollout.n_gpus_per_node": "6",
        "actor_rollout_ref.rollout.temperature": "1.0",
        "actor_rollout_ref.rollout.calculate_log_probs": "True",
        "actor_rollout_ref.hybrid_engine": "False",
        "algorithm.rollout_correction.bypass_mode": "True",
        "algorithm.filter_groups.enable": "True",
        "algorithm.filter_groups.metric": "raw_reward",
        "data.train_batch_size": "32",
        "trainer.n_gpus_per_node": "2",
        "trainer.v1.trainer_mode": "tadpole",
        "trainer.v1.separate_async.parameter_sync_step": "1",
        "trainer.total_training_steps": "200",
    }
    assert {key: found.get(key) for key in wanted} == wanted


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_lag_is_verls_threshold(lag):
    """verl drops a group at g - drawn + 1 > threshold; its oldest token lags g - drawn updates."""
    found = as_dict(load({"train.max_lag": str(lag)}, preset="verl-report"))
    threshold = int(found["trainer.v1.sampler.max_off_policy_threshold"])
    kept = [lagging for lagging in range(10) if lagging + 1 <= threshold]
    assert max(kept) == lag
    assert found["trainer.v1.sampler.max_off_policy_strategy"] == "drop"
    assert found["trainer.v1.separate_async.num_warmup_batches"] == str(lag)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_whole_context_can_be_trained_on(preset):
    config = load(preset=preset)
    found = as_dict(config)
    assert sum(lengths(config)) == config.leaf.max_context
    per_gpu = int(found["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"])
    parallel = int(found["actor_rollout_ref.actor.ulysses_sequence_parallel_size"])
    assert per_gpu * parallel >= config.leaf.max_context


@pytest.mark.parametrize(("rollout", "kept_back"), [("vllm", 0), ("sglang", 1)])
def test_a_turn_can_fill_the_whole_context(rollout, kept_back):
    """verl samples at most max_model_len - prompt tokens with vLLM, one fewer with SGLang."""
    found = as_dict(load({"cluster.rollout": rollout}, preset="verl-report"))
    longest = int(found["actor_rollout_ref.rollout.max_model_len"]) - kept_back
    assert longest == 131_072


@pytest.mark.parametrize("preset", PRESETS)
def test_no_line_comes_twice(preset):
    keys = [line.split("=", 1)[0] for line in overrides(load(preset=preset))]
    assert len(keys) == len(set(keys)) > 60


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"leaf.compaction_window": "32768"}, "compaction_window cannot be used"),
        ({"train.lora.rank": "8"}, "trains all weights"),
        ({"sampling.top_p": "0.9"}, "top_p 1 without top_k"),
        ({"sampling.top_k": "20"}, "top_p 1 without top_k"),
    ],
)
def test_what_it_cannot_do_is_refused(flags, line):
    with pytest.raises(ConfigError, match=line):
        overrides(load(flags, preset="verl-report"))


def test_a_path_with_blanks_is_quoted(tmp_path):
    found = as_dict(load({"run.dir": str(tmp_path / "my run")}, preset="verl-report"))
    assert found["+tadpole.run"] == f'"{tmp_path / "my run"}"'


class TestNames:
    def rows(self):
        return [
            UpdateRow(update=u, episodes=1, mean_reward=0.5, fingerprint=f"b+{u}.0")
            for u in (1, 2, 3)
        ]

    def test_a_first_start(self):
        names = Names.of("b", [], 0, 0)
        assert [names.of_version(v) for v in (0, 1, 2)] == ["b", "b+1.0", "b+2.0"]

    def test_updates_that_are_made_again_get_other_names(self):
        names = Names.of("b", self.rows(), 2, 5)
        assert [names.of_version(v) for v in range(5)] == ["b", "b+1.0", "b+2.0", "b+3.5", "b+4.5"]

    def test_the_last_row_of_an_update_counts(self):
        again = UpdateRow(update=2, episodes=1, mean_reward=0.5, fingerprint="b+2.1")
        assert Names.of("b", [*self.rows(), again], 2, 5).of_version(2) == "b+2.1"

    def test_places_are_absolute(self):
        assert Places.of("runs/x").tasks.is_absolute()
