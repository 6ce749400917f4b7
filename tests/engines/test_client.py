"""What of a rollout engine's answer is believed, and what becomes of the rest."""

from types import SimpleNamespace

import pytest

from tadpole.engines.verl.client import ClientPolicy
from tadpole.engines.verl.places import Names
from tadpole.errors import ModelError
from tadpole.protocols import Sampling

END = 9


class Engine:
    """Answers once, as verl's client does; keeps what it was asked."""

    def __init__(self, ids=(1, 2, END), logprobs=(-1.0, -0.5, -0.1), fails=None, **extra):
        self.answer = SimpleNamespace(
            token_ids=list(ids),
            log_probs=None if logprobs is None else list(logprobs),
            extra_fields={"min_global_steps": 3, "max_global_steps": 4} | extra,
        )
        self.fails, self.asked = fails, None

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.asked = (request_id, prompt_ids, sampling_params)
        if self.fails:
            raise self.fails
        return self.answer


def policy(engine):
    return ClientPolicy(engine, Names(base="b", incarnation=2), 3, {END})


async def sampled(engine, limit=8):
    return await policy(engine).sample((5, 6), Sampling(max_tokens=limit), episode="e", seed=1)


async def test_tokens_pass_as_they_are():
    engine = Engine()
    found = await sampled(engine)
    assert (found.ids, found.logprobs, found.ended) == ((1, 2, END), (-1.0, -0.5, -0.1), True)
    assert found.version == 3  # the oldest of those that sampled a part
    name, prompt, asked = engine.asked
    assert (name, prompt) == ("e", [5, 6])
    assert asked == {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": 8,
                     "stop_token_ids": [END], "logprobs": True}  # fmt: skip


async def test_a_turn_that_fills_its_limit_is_cut():
    found = await sampled(Engine(ids=(1, 2), logprobs=(-1, -1)), limit=2)
    assert not found.ended


def test_it_is_named_by_what_was_in_force():
    assert policy(Engine()).fingerprint == "b+3.2"


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        (Engine(ids=(1, 2), logprobs=(-1, -1)), "without its end token"),
        (Engine(logprobs=None), "3 tokens with 0 log-probabilities"),
        (Engine(logprobs=(-1, -1)), "3 tokens with 2 log-probabilities"),
        (Engine(logprobs=(-1, -1, float("nan"))), "log-probabilities that are none"),
        (Engine(ids=(), logprobs=()), "0 tokens"),
        (Engine(ids=(END, 1, END)), "went on after the end"),
        (Engine(min_global_steps=None), "does not say which weights"),
        (Engine(fails=RuntimeError("No available\nservers")), "RuntimeError: No available servers"),
    ],
)
async def test_what_cannot_be_trained_on_is_refused(engine, line):
    with pytest.raises(ModelError, match=line):
        await sampled(engine)
