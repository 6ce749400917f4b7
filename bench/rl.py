"""How fast the update and the rollout are, side by side with others, on one model and the CPU.

    python -m bench.rl [--model DIR]

*Update*: one frozen batch of groups that share their prompts, through the learner and through
TRL's GRPO trainer, or where the extra ``bench`` is not installed through padded rows with logits
of the whole vocabulary. Both train the same float32 weights in the same number format, on as many
threads, with micro-batches of as many tokens and all activations kept. Each has a process of its
own; the first step only warms up, and the faster of the others counts. Peak memory is the weights
and what came on top of all that the process held once they were loaded. *Rollout*: 16 multi-turn
episodes at a time, and `generate` of transformers called per turn and episode on a model of the
same format. *Lag*: the scheduler, simulated (bench/schedule.py).
"""

import asyncio
import importlib.util
import json
import os
import random
import sys
import time
from pathlib import Path

import click
import torch

from bench.schedule import Shape, table
from tadpole.config import load
from tadpole.models.embedded import embedded_policy
from tadpole.models.loading import Loaded, load_model, pick_dtype
from tadpole.prepared import Prepared, prepare_policy
from tadpole.process import run
from tadpole.protocols import Sampling
from tadpole.rl.batch import Sample, micro_batches
from tadpole.rl.learner import Learner
from tadpole.rl.loss import policy_loss
from tadpole.rundir import cache_dir
from tadpole.settings import EMBEDDED
from tadpole.trace import Tokens

GROUPS, GROUP = 2, 8
PROMPT, TURN, RESULT, TURNS = 256, 40, 60, 3  # tokens
BUDGET = 2048  # tokens of a micro-batch
STEPS = 3  # of which the first warms up
WAYS = ("learner", "trl", "padded")


@click.command()
@click.option("--model", default="embedded", help="A Hugging Face directory, or embedded.")
@click.option("--way", type=click.Choice(WAYS), hidden=True)
def main(model: str, way: str | None) -> None:
    """Print the table."""
    if way is not None:
        click.echo(json.dumps(_update(model, way)))
        return
    found: dict[str, dict[str, float]] = {}
    other = "trl" if importlib.util.find_spec("trl") else "padded"
    if other != "trl":
        click.echo(
            "TRL is not installed (pip install -e '.[bench]'): padded rows instead", err=True
        )
    for name in ("learner", other):
        argv = [sys.executable, "-m", "bench.rl", "--model", model, "--way", name]
        done = run(argv, cwd=Path.cwd(), timeout=3600)
        if not done.ok:
            raise click.ClickException(done.last_line())
        found[name] = json.loads(done.stdout.splitlines()[-1])
    ours, theirs = found["learner"], found[other]
    rates, peaks = (ours["rate"], theirs["rate"]), (ours["peak"], theirs["peak"])
    click.echo(f"{'':<36}{'ours':>10}{'other':>10}{'ratio':>9}")
    _row(f"update, tokens/s, {other}", *rates, rates[0] / rates[1], ">= 1.5")
    _row(f"update, peak MB, {other}", *peaks, peaks[0] / peaks[1], "<= 0.8")
    _row("update, share outside the model", ours["outside"], None, None, "<= 0.10")
    prepared = _prepare(model)
    try:
        fast, slow = asyncio.run(_rollout(prepared)), _generate(prepared, model)
    finally:
        prepared.close()
    _row(f"rollout, {GROUPS * GROUP} episodes, tokens/s", fast, slow, fast / slow, ">= 4")
    click.echo("\nlag, simulated: 6 engines, 32 x 8, long-tailed lengths")
    table(Shape(updates=10), 1, [{"lag": lag} for lag in (0, 1, 3)])


def _row(what: str, ours: float, plain: float | None, ratio: float | None, bar: str) -> None:
    other = "" if plain is None or ratio is None else f"{plain:>10.2f}{ratio:>8.2f}x"
    click.echo(f"{what:<36}{ours:>10.2f}{other:<20}  bar {bar}")


def _prepare(model: str) -> Prepared:
    settings = {"run.concurrency": GROUPS * GROUP, "leaf.max_context": 1024}
    config = load({"policy.model": model, "policy.device": "cpu", **settings})
    return prepare_policy(config, cache_dir())


def _load(model: str, dtype: torch.dtype) -> Loaded:
    """The model and nothing that samples it, on all threads."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return load_model(embedded_policy(cache_dir()) if model == EMBEDDED else model, dtype=dtype)


def _batch(vocabulary: int) -> list[Sample]:
    """Frozen: prompts shared in a group, turns with results between, log-probabilities of 1/2."""
    rng = random.Random(0)
    samples = []
    for _ in range(GROUPS):
        prompt = [rng.randrange(vocabulary) for _ in range(PROMPT)]
        for member in range(GROUP):
            ids, mask = list(prompt), [0] * PROMPT
            for turn in range(rng.randrange(1, TURNS + 1)):
                for length, trained in ((TURN, 1), (RESULT if turn < TURNS - 1 else 0, 0)):
                    ids += [rng.randrange(vocabulary) for _ in range(length)]
                    mask += [trained] * length
            tokens = Tokens(
                ids=tuple(ids),
                logprobs=tuple(-0.7 * trained for trained in mask),
                loss_mask=tuple(mask),
                versions=tuple(trained - 1 for trained in mask),
            )
            samples.append(Sample(tokens, 1.0 if member % 2 else -1.0))
    return samples


def _update(model: str, way: str) -> dict[str, float]:
    """Rates are of all tokens of the trajectories; those of a prompt count in each of them."""
    trl = None
    if way == "trl":
        from bench import trl_update as trl
    loaded, dtype = _load(model, torch.float32), pick_dtype("auto", "cpu")
    weights = sum(w.nbytes for w in loaded.model.parameters()) / 2**20
    before = _memory("VmRSS") - weights  # imports are no part of an update
    samples = _batch(loaded.model.config.vocab_size)
    count = sum(len(sample.tokens.ids) for sample in samples)
    taken: list[tuple[float, float]] = []  # seconds of a step, and of those in the model
    if trl is not None:
        given = (loaded.model, loaded.tokenizer, samples, BUDGET, dtype)
        taken = [(seconds, 0.0) for seconds in trl.update_seconds(*given, steps=STEPS)]
    else:
        learner = Learner(
            loaded.model, lr=1e-6, dtype=dtype, micro_batch_tokens=BUDGET, max_mean_gap=1.0
        )
        for _ in range(STEPS):
            start, inside = time.perf_counter(), 0.0
            if way == "learner":
                inside = learner.update(samples).seconds_model
            else:
                _padded_step(learner, samples)
            taken.append((time.perf_counter() - start, inside))
    seconds, inside = min(taken[1:])
    peak = _memory("VmHWM") - before
    return {"rate": count / seconds, "peak": peak, "outside": 1 - inside / seconds}


def _memory(name: str) -> float:
    """Megabytes that this process holds (VmRSS), or at most held (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def _padded_step(learner: Learner, samples: list[Sample]) -> None:
    """A row a trajectory, logits of every position over the whole vocabulary."""
    trainable = sum(sample.trainable for sample in samples)
    learner.model.train()
    for batch in micro_batches(samples, BUDGET, share=False):
        with torch.autocast("cpu", dtype=learner.dtype, enabled=learner.dtype is torch.bfloat16):
            logits = learner.model(input_ids=batch.ids_BT).logits
        logs = logits.float().log_softmax(-1).flatten(0, 1)[batch.predictor_N]
        logp_N = logs.gather(-1, batch.target_N[:, None]).squeeze(-1)
        policy_loss(logp_N, batch.logq_N, batch.advantage_N, trainable).backward()
    torch.nn.utils.clip_grad_norm_(learner.parameters, learner.grad_clip)
    learner.optimizer.step()
    learner.optimizer.zero_grad(set_to_none=True)


def _episodes(vocabulary: int) -> list[list[list[int]]]:
    """The given parts of each episode: its prompt, then the results after its turns."""
    rng = random.Random(1)
    prompts = [[rng.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(GROUPS)]
    results = [
        [[rng.randrange(vocabulary) for _ in range(RESULT)] for _ in range(TURNS - 1)]
        for _ in range(GROUPS * GROUP)
    ]
    return [[prompts[n % GROUPS], *rest] for n, rest in enumerate(results)]


async def _rollout(prepared: Prepared) -> float:
    """Generated tokens a second, all episodes at a time."""
    sampling = Sampling(max_tokens=TURN)

    async def episode(number: int, given: list[list[int]]) -> int:
        ids: list[int] = []
        made = 0
        for part in given:
            ids += part
            sampled = await prepared.policy.sample(ids, sampling, episode=str(number), seed=number)
            ids += sampled.ids
            made += len(sampled.ids)
        prepared.policy.release(str(number))
        return made

    await prepared.policy.sample([1], Sampling(max_tokens=2), episode="warm", seed=0)
    prepared.policy.release("warm")
    episodes = _episodes(prepared.loaded.model.config.vocab_size)
    start = time.perf_counter()
    made = await asyncio.gather(*(episode(n, given) for n, given in enumerate(episodes)))
    return sum(made) / (time.perf_counter() - start)


@torch.no_grad()
def _generate(prepared: Prepared, name: str) -> float:
    """The same by ``generate``, a call for each turn of each episode, in the same number format.

    All weights are held in that format, so that none is rounded again for each call.
    """
    model = _load(name, prepared.dtype).model.eval()
    ends = sorted(prepared.dialogue.end_ids)

    def turn(ids: list[int], most: int) -> list[int]:
        out = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=True,
            temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=most,
            eos_token_id=ends, pad_token_id=ends[0],
        )  # fmt: skip
        new: list[int] = out[0, len(ids) :].tolist()
        return new

    turn([1], 2)
    made, start = 0, time.perf_counter()
    for given in _episodes(model.config.vocab_size)[: GROUPS * GROUP // 4]:  # a quarter will do
        ids: list[int] = []
        for part in given:
            ids += part
            new = turn(ids, TURN)
            ids += new
            made += len(new)
    return made / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
