"""The interface warm-up of a tiny policy: maximum likelihood on self-made transcripts.

Off for every model but the embedded one. What it does and does not teach is said in
:mod:`tadpole.rl.transcripts`; that it was done is recorded beside the weights.
"""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from tadpole.leaf.dialogue import Dialogue
from tadpole.protocols import SandboxEngine, SandboxSpec
from tadpole.rl.batch import Sample
from tadpole.rl.learner import Learner
from tadpole.rl.transcripts import transcripts

VARIANTS = 4  # transcripts that share a message, and with it the work on its tokens


async def warm_up(
    learner: Learner,
    dialogue: Dialogue,
    engine: SandboxEngine,
    *,
    steps: int,
    batch: int,
    seed: int,
    progress: Callable[[int, float], None],
) -> list[float]:
    """Take ``steps`` optimizer steps of ``batch`` transcripts; the loss of each, nats a token.

    ``progress`` is called with (steps done, loss).
    """
    rng = random.Random(f"warm-up {seed}")
    losses = []
    with tempfile.TemporaryDirectory(prefix="tadpole-") as tree:
        Path(tree).chmod(0o755)
        sandbox = await engine.start(SandboxSpec(tree=Path(tree)))
        try:
            for step in range(steps):
                made = [
                    tokens
                    for _ in range(max(1, batch // VARIANTS))
                    for tokens in await transcripts(dialogue, sandbox, rng, VARIANTS)
                ]
                share = 1 - step / steps  # linear decay: the last steps settle
                samples = [Sample(tokens, 1.0) for tokens in made]
                losses.append(learner.imitate(samples, lr_share=share))
                progress(step + 1, losses[-1])
        finally:
            await sandbox.close()
    return losses
