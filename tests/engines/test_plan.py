"""The plan's arithmetic, against numbers worked by hand and a model that is really built."""

import json

import pytest

from tadpole.cli.main import run
from tadpole.config import load
from tadpole.engines import plan as planning
from tadpole.engines.plan import GIB, plan
from tadpole.engines.shape import QWEN35_4B, Shape, shape_of
from tadpole.engines.verl.overrides import overrides
from tadpole.errors import ConfigError
from tadpole.rl import logprob
from tests.engines.qwen import SHAPE, tiny_config, tiny_qwen

TOY = Shape(
    hidden=8, intermediate=16, layers=2, attention_layers=1, heads=2, kv_heads=1, head_dim=4,
    vocabulary=10, tied=True, key_heads=1, value_heads=2, key_dim=4, value_dim=4, conv=4,
)  # fmt: skip


class TestShape:
    def test_by_hand(self):
        # MLP and norms: 2 layers x (3 x 8 x 16 + 2 x 8) = 800. Attention: query 8 x 16, keys and
        # values 8 x 8, output 8 x 8, two norms of 4 = 128 + 64 + 64 + 8 = 264. Gated DeltaNet:
        # mixed 2 x 4 + 2 x 4 = 16: 8 x 16 + 8 x 8 + 8 x 4 + 16 x 4 + 8 x 8 + 4 + 4 = 360.
        # Embedding 80, last norm 8.
        assert TOY.parameters == 800 + 264 + 360 + 80 + 8
        assert TOY.kv_bytes == 1 * 2 * 1 * 4 * 2
        assert TOY.state_bytes == 2 * 4 * 4 * 4 + 16 * 3 * 2
        # rank 1: MLP 2 x 3 x 24; attention (8 + 16) + 2 x (8 + 4) + (8 + 8); Gated DeltaNet
        # (8 + 16) + (8 + 8) + 2 x (8 + 2) + (8 + 8)
        assert TOY.adapter(1) == 144 + 64 + 76
        assert TOY.adapter(4) == 4 * TOY.adapter(1)

    def test_a_model_that_is_built_has_as_many_weights(self):
        text = tiny_qwen()
        assert SHAPE.parameters == sum(p.numel() for p in text.parameters())

    def test_the_4b_tower(self):
        assert QWEN35_4B.parameters == 4_205_751_296

    def test_read_from_a_directory(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps(tiny_config().to_dict()))
        assert shape_of(str(tmp_path)) == SHAPE
        with pytest.raises(ConfigError, match=r"no plan for the model nowhere: .* Qwen/Qwen3.5-4B"):
            shape_of("nowhere")

    def test_windows_count_as_whole_attention(self, tmp_path):
        text = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 10,
                "num_attention_heads": 2, "num_key_value_heads": 1}  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(text))
        plain = shape_of(str(tmp_path))
        kinds = {"layer_types": ["sliding_attention", "full_attention"]}
        (tmp_path / "config.json").write_text(json.dumps(text | kinds))
        assert shape_of(str(tmp_path)) == plain and plain.attention_layers == 2

    @pytest.mark.parametrize(
        ("change", "line"),
        [
            ({"layer_types": ["conv", "full_attention"]}, r"layers of another kind \(conv\)"),
            ({"num_experts": 128}, "mixture of experts"),
            ({"layer_types": None}, "does not say 'layer_types'"),
            ({"vocab_size": None}, None),
            ({"num_hidden_layers": "four"}, "is none of a decoder"),
        ],
    )
    def test_another_kind_of_model_has_no_plan(self, tmp_path, change, line):
        text = tiny_config().to_dict() | change
        if line is None:
            del text["vocab_size"]
            line = "does not say 'vocab_size'"
        (tmp_path / "config.json").write_text(json.dumps(text))
        with pytest.raises(ConfigError, match=rf"{line}; --cluster\.gpu_gib 0 goes on"):
            shape_of(str(tmp_path))

    @pytest.mark.parametrize("body", ["[]", '"x"', "{}", '{"text_config": 3}'])
    def test_a_config_that_is_none(self, tmp_path, body):
        (tmp_path / "config.json").write_text(body)
        with pytest.raises(ConfigError, match=r"no plan for .*--cluster\.gpu_gib 0"):
            shape_of(str(tmp_path))

    def test_the_chunk_is_that_of_the_learner(self):
        assert planning.CHUNK == logprob.CHUNK


class TestMemory:
    def test_a_training_gpu_by_hand(self):
        config = load(preset="verl-report")
        needs = {n.what: n.gib for n in planning.trainer_gpu(config, QWEN35_4B).needs}
        # 16 bytes x 4,205,751,296 / 2 GPUs = 31.336 GiB; 65,536 tokens x 2560 x 2 bytes x 32
        # layers = 10 GiB
        assert needs["weights, gradients, moments"] == pytest.approx(31.3353, abs=1e-3)
        assert needs["activations kept"] == pytest.approx(10.0)
        assert needs["gathered embedding"] == pytest.approx(4 * 248_320 * 2560 / GIB)

    def test_twice_the_gpus_halve_the_shards(self):
        two, four = (
            load(preset="verl-report"),
            load({"cluster.train_gpus": "4"}, preset="verl-report"),
        )
        first = [planning.trainer_gpu(c, QWEN35_4B).needs[0].gib for c in (two, four)]
        assert first[0] == pytest.approx(2 * first[1])

    @pytest.mark.parametrize("preset", ["verl-report", "verl-8x80", "verl-2nodes"])
    def test_the_presets_fit(self, preset):
        assert plan(load(preset=preset), QWEN35_4B).refusal() == ""

    @pytest.mark.parametrize("preset", ["gpu-24", "gpu-80"])
    def test_one_gpu_fits_with_adapters_and_not_without(self, preset):
        config = load(preset=preset)
        assert config.train.lora.rank
        assert plan(config, QWEN35_4B, rank=config.train.lora.rank).refusal() == ""
        refusal = plan(config, QWEN35_4B, rank=0).refusal()
        assert "most of it: trained weights, gradients, moments" in refusal

    def test_a_server_without_room_for_an_episode_is_refused(self):
        config = load({"cluster.server_share": "0.3"}, preset="gpu-24")
        with pytest.raises(ConfigError, match="cannot hold weights and one episode"):
            plan(config, QWEN35_4B, rank=16)

    def test_the_least_that_a_server_needs_by_hand(self):
        config = load({"run.concurrency": "8"}, preset="gpu-24")
        # A token inside a layer: 2 x (4 x 9216 + 6 x 2560 + 2 x 8192 + 4 x 4096) = 169,984 bytes,
        # 2048 of them; logits of 8 turns, 12 bytes each; 32,464,896 weights of rank 16.
        need = planning._serving(config, QWEN35_4B, 16)
        by_hand = 169_984 * 2048 + 12 * 248_320 * 8 + 2 * 32_464_896
        assert need.gib == pytest.approx(by_hand / GIB)
        # 36% of the card hold the weights and an episode, and no more: vLLM would not start.
        small = load({"cluster.server_share": "0.36"}, preset="gpu-24")
        with pytest.raises(ConfigError, match="with what it works with"):
            plan(small, QWEN35_4B, rank=16)

    @pytest.mark.parametrize("rollout", ["vllm", "sglang"])
    def test_a_rollout_engine_fills_what_is_planned(self, rollout):
        config = load({"cluster.rollout": rollout}, preset="verl-8x80")
        asked = dict(line.split("=", 1) for line in overrides(config))
        share = float(asked["actor_rollout_ref.rollout.gpu_memory_utilization"])
        gpu = planning.rollout_gpu(config, QWEN35_4B)
        assert gpu.gib == pytest.approx(share * config.cluster.gpu_gib)

    def test_what_is_advised_is_of_the_trainer_that_is_asked_for(self):
        tight = load({"cluster.gpu_gib": "24"}, preset="verl-8x80")
        refusal = plan(tight, QWEN35_4B).refusal()
        assert "raise --cluster.train_gpus or --cluster.context_parallel" in refusal
        assert "micro_batch_tokens" not in refusal and "adapters" not in refusal
        longer = {"leaf.max_context": "4000000", "cluster.train_gpus": "4000",
                  "cluster.context_parallel": "4000"}  # fmt: skip
        refusal = plan(load(longer, preset="verl-8x80"), QWEN35_4B).refusal()
        assert refusal.startswith("rollout GPU") and "raise --cluster.tensor_parallel" in refusal
        assert "or train adapters" in plan(load(preset="gpu-24"), QWEN35_4B, rank=0).refusal()

    def test_a_gpu_of_unknown_size(self):
        with pytest.raises(ConfigError, match=r"say --cluster\.gpu_gib"):
            plan(load({"policy.model": "x"}), QWEN35_4B)

    def test_longer_episodes_never_need_less(self):
        totals = [
            plan(load({"leaf.max_context": str(n)}, preset="verl-report"), QWEN35_4B).gpus[0].total
            for n in (16_384, 65_536, 131_072)
        ]
        assert totals == sorted(totals) and totals[0] < totals[-1]


class TestWork:
    def test_by_hand(self):
        config = load(
            {"train.groups": "2", "train.group_size": "4", "cluster.mean_context": "1000",
             "cluster.generated_share": "0.5", "cluster.useful_share": "0.5",
             "cluster.decode_rate": "100", "cluster.gpu_tflops": "1",
             "cluster.train_efficiency": "0.5", "train.updates": "3600", "train.max_lag": "1"},
            preset="verl-report",
        )  # fmt: skip
        work = planning.workload(config, TOY, training=1, sampling=2)
        assert (work.episodes, work.tokens, work.generated) == (16, 8000, 8000.0)
        # 8000 tokens at 2 x 100 a second; 8000 x (8 x 1512 + 4 x 2 x 1 x 8 x 1000) / 0.5e12
        assert work.seconds_sample == pytest.approx(40.0)
        assert work.seconds_train == pytest.approx(8000 * (12_096 + 64_000) / 0.5e12)
        assert work.hours == pytest.approx(40.0)  # 3600 updates, the slower of both

    def test_in_turn_they_add_up(self):
        config = load({"train.max_lag": "0"}, preset="verl-report")
        work = planning.workload(config, QWEN35_4B, training=2, sampling=6)
        seconds = work.seconds_sample + work.seconds_train
        assert work.hours == pytest.approx(work.updates * seconds / 3600)


class TestVerb:
    def test_the_plan_is_printed(self, capsys):
        assert run(["train", "--preset", "verl-8x80", "--plan"]) == 0
        out = capsys.readouterr().out
        assert "training GPU (4)" in out and "assumed, not measured" in out

    def test_what_cannot_fit_is_said_and_refused(self, capsys, tmp_path):
        words = ["train", "--preset", "verl-8x80", "--cluster.gpu_gib", "24"]
        assert run([*words, "--plan"]) == 1
        assert "training GPU needs" in capsys.readouterr().err
        assert run([*words, "--run", str(tmp_path / "run")]) == 2
        assert "training GPU needs" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("flags", "line"),
        [
            ({"cluster.train_gpus": "3"}, "groups of context_parallel 2"),
            ({"cluster.tensor_parallel": "4"}, "engines of tensor_parallel 4"),
            ({"cluster.rollout": "inprocess"}, "rollout is vllm or sglang"),
            ({"cluster.trainer": "slime"}, "'local' or 'verl'"),
        ],
    )
    def test_a_cluster_that_cannot_be(self, flags, line):
        with pytest.raises(ConfigError) as caught:
            load(flags, preset="verl-report")
        assert line in str(caught.value)
