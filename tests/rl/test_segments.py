"""An episode of several contexts is trained on in all of them."""

from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.trace import Tokens
from tests.rl.climbing import EvenTokens, make_climb, tasks


class Compacted(EvenTokens):
    """The same episodes, whose one sampled token is in a context before the last."""

    async def attempt(self, *args, **kwargs):
        row, trace = await super().attempt(*args, **kwargs)
        ids = trace.tokens.ids[:5]
        rest = Tokens(
            ids=ids,
            logprobs=(0.0,) * len(ids),
            loss_mask=(0,) * len(ids),
            versions=(-1,) * len(ids),
        )
        return row, trace.model_copy(update={"earlier": (trace.tokens,), "tokens": rest})


async def test_a_compacted_episode_makes_the_same_update(tmp_path):
    rows = []
    for name, kind in (("plain", EvenTokens), ("compacted", Compacted)):
        climb = make_climb(tmp_path / name, updates=1)
        climb.rollout = kind(climb.policy, climb.rundir)
        try:
            await climb.run(tasks(), lambda row: None)
        finally:
            climb.policy.close()
        rows += climb.rundir.rows(TABLE, UpdateRow)
    plain, compacted = rows
    assert compacted.tokens == plain.tokens > 0
    assert (compacted.loss, compacted.grad_norm) == (plain.loss, plain.grad_norm)
