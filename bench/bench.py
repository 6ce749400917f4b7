"""How fast the parts are on this machine: sandbox, tools, sampling, update. One line each.

python bench/bench.py
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from tadpole.config import load
from tadpole.prepared import Prepared, prepare_policy
from tadpole.protocols import Sampling, SandboxSpec
from tadpole.rl.batch import Sample
from tadpole.rl.learner import Learner
from tadpole.rundir import cache_dir
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.trace import Tokens

CONTEXT, GENERATED = 256, 64  # tokens


@click.command()
@click.option("--rounds", default=10, help="Repetitions of the sandbox parts.")
def main(rounds: int) -> None:
    """Time the parts."""
    asyncio.run(_sandbox(rounds))
    prepared = prepare_policy(load({"run.concurrency": 8}), cache_dir())
    try:
        asyncio.run(_sampling(prepared))
        _update(prepared)
    finally:
        prepared.close()


async def _sandbox(rounds: int) -> None:
    engine = BubblewrapEngine()
    with tempfile.TemporaryDirectory(prefix="tadpole-bench-") as directory:
        tree = Path(directory)
        tree.chmod(0o755)
        (tree / "a.py").write_text("x = 1\n")
        spec = SandboxSpec(tree=tree)

        async def start() -> None:
            await (await engine.start(spec)).close()

        _show("sandbox start and end", await _times(start, rounds))
        sandbox = await engine.start(spec)
        try:
            read = {"file_path": "a.py"}
            _show("Read", await _times(lambda: sandbox.tool("Read", read), rounds))
            true = {"command": "true", "description": "nothing"}
            _show("Bash", await _times(lambda: sandbox.tool("Bash", true), rounds))
        finally:
            await sandbox.close()


async def _sampling(prepared: Prepared) -> None:
    prompt = [int(i) for i in prepared.loaded.tokenizer("x = 1\n" * CONTEXT)["input_ids"][:CONTEXT]]
    for rows in (1, 8):
        start = time.perf_counter()
        made = await asyncio.gather(
            *(
                prepared.policy.sample(
                    prompt, Sampling(max_tokens=GENERATED), episode=f"{rows}-{row}", seed=row
                )
                for row in range(rows)
            )
        )
        seconds = time.perf_counter() - start
        tokens = sum(len(one.ids) for one in made)
        click.echo(f"{f'sampling, {rows} at a time':<24} {tokens / seconds:8.0f} tokens/s")


def _update(prepared: Prepared) -> None:
    learner = Learner(prepared.loaded.model, lr=1e-6, dtype=prepared.dtype)
    ids = tuple(range(100, 100 + CONTEXT))
    mask = (0, *[1] * (CONTEXT - 1))  # the first token follows nothing
    tokens = Tokens(ids=ids, logprobs=(0.0,) * CONTEXT, loss_mask=mask, versions=(0,) * CONTEXT)
    start = time.perf_counter()
    learner.imitate([Sample(tokens, 1.0)] * 8)
    seconds = time.perf_counter() - start
    click.echo(f"{'update':<24} {8 * CONTEXT / seconds:8.0f} tokens/s")


async def _times(work: Callable[[], Awaitable[object]], rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - start)
    return seconds


def _show(name: str, seconds: list[float]) -> None:
    ms = sorted(1000 * s for s in seconds)
    click.echo(f"{name:<24} {statistics.median(ms):8.1f} ms (slowest {ms[-1]:.1f})")


if __name__ == "__main__":
    main()
