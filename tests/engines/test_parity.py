"""Our learner and verl's FSDP2 actor on one frozen batch of a tiny Qwen3.5, in float32.

Tolerance: loss within 1e-5 relative, each weight's gradient within 2e-3 of its own norm (sums in
another order, trajectories packed here and padded there).
"""

import importlib.util
import math
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tadpole import process
from tadpole.rl.batch import Sample
from tadpole.rl.groups import learned_advantages
from tadpole.rl.learner import Learner
from tadpole.settings import TrainConfig
from tadpole.trace import Tokens
from tests.engines.qwen import tiny_whole
from tests.tiny import byte_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None,
        reason="verl is not installed: pip install 'tadpole[verl]' in an environment of its own",
    ),
]
ROOT = Path(__file__).parents[2]


def frozen(model, seed=0):
    """(rows for verl, samples for ours): two groups of four, tool results in between, some of
    their probabilities far from the model's."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    rows, samples = [], []
    for group in range(2):
        prompt = torch.randint(256, (9 + group,)).tolist()
        raw = [1.0, 0.0, 0.5, 0.0]
        advantages = learned_advantages(
            raw, [10] * 4, TrainConfig(), update=1, rng=np.random.default_rng(0)
        )
        assert advantages is not None
        for advantage in map(float, advantages):
            rest = torch.randint(256, (rng.randrange(20, 90),)).tolist()
            mask = [1 if k == 0 or rng.random() < 0.6 else 0 for k in range(len(rest))]
            with torch.no_grad():
                logs = model(input_ids=torch.tensor([prompt + rest])).logits[0].log_softmax(-1)
            logq = []
            for k, (token, trained) in enumerate(zip(rest, mask, strict=True)):
                logp = float(logs[len(prompt) + k - 1, token])
                far = math.log(0.6) if rng.random() < 0.1 else logp + rng.gauss(0, 0.2)
                logq.append(min(far, 0.0) if trained else 0.0)
            rows.append({"prompts": prompt, "responses": rest, "mask": mask,
                         "old_log_probs": logq, "advantage": advantage})  # fmt: skip
            before = len(prompt)
            samples.append(
                Sample(
                    Tokens(
                        ids=(*prompt, *rest),
                        logprobs=(*[0.0] * before, *logq),
                        loss_mask=(*[0] * before, *mask),
                        versions=(*[-1] * before, *(0 if m else -1 for m in mask)),
                    ),
                    advantage,
                )
            )
    return rows, samples


def test_loss_gradient_and_kept_tokens_agree(tmp_path):
    whole = tiny_whole()
    kinds = whole.config.text_config.layer_types
    assert (kinds.count("linear_attention"), kinds.count("full_attention")) == (3, 1)
    whole.save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    rows, samples = frozen(model.eval())
    torch.save(rows, tmp_path / "rows.pt")
    env = os.environ | {
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_USE_EXTERNAL_MODULES": "tests.engines.oncpu",
        "SMOKE_WEIGHTS": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    done = process.run([sys.executable, "-m", "tests.engines.parity", tmp_path], env=env, cwd=ROOT)
    assert done.ok, done.stderr.decode()[-3000:]
    theirs = torch.load(tmp_path / "verl.pt")

    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    learner = Learner(model, lr=1.0, grad_clip=1e9, micro_batch_tokens=256, max_mean_gap=1.0)
    learner.optimizer = torch.optim.SGD(learner.parameters, lr=1.0)  # leaves the gradient
    stats = learner.update(samples)
    ours = {n: (before[n] - t.detach()) for n, t in model.named_parameters()}

    trainable = sum(sample.trainable for sample in samples)
    sums = {name.rpartition("_")[2]: value for name, value in theirs["sums"].items()}
    print(f"loss {stats.loss:.8f} and {theirs['loss']:.8f}")
    print(f"dropped {stats.dropped_share * trainable:.0f} and {sums['dropped']:.0f} of {trainable}")
    assert sums["tokens"] == trainable
    assert 0 < sums["dropped"] == pytest.approx(stats.dropped_share * trainable)
    assert sums["gaps"] == pytest.approx(stats.mean_abs_pq * trainable, rel=1e-4)
    assert stats.loss == pytest.approx(theirs["loss"], rel=1e-5, abs=1e-7)
    text = {n.replace("model.language_model.", "model."): s for n, s in theirs["slopes"].items()}
    assert set(ours) <= set(text) | {"lm_head.weight"}, set(ours) - set(text)
    worst = 0.0
    for name, slope in ours.items():
        error = float((text[name] - slope).norm() / slope.norm().clamp_min(1e-9))
        worst = max(worst, error)
        assert error < 2e-3, (name, error)
    print(f"largest relative difference of a weight's gradient {worst:.1e}, of {len(ours)} weights")
    assert not [name for name in theirs["slopes"] if "visual" in name]
