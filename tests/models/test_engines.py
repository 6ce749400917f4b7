"""Rollout servers over real HTTP: what they give is exact, and what they break is told apart."""

import asyncio
import copy
import json
import math
from contextlib import ExitStack

import pytest
import torch

from tadpole.errors import ModelError
from tadpole.models.engines.policy import ServerPolicy
from tadpole.models.engines.sglang import SGLang
from tadpole.models.engines.vllm import VLLM
from tadpole.protocols import Sampling
from tests.models.servers import SGLangServer, VLLMServer, served
from tests.rl.climbing import make_climb, tasks
from tests.tiny import llama

END = 257
TURN = Sampling(max_tokens=12)
GENERATE = {"sglang": "/generate", "vllm": "/v1/completions"}
LOAD = {"sglang": "/update_weights_from_disk", "vllm": "/collective_rpc"}
ADOPT = {"sglang": "/load_lora_adapter", "vllm": "/v1/load_lora_adapter"}
DROP = {"sglang": "/unload_lora_adapter", "vllm": "/v1/unload_lora_adapter"}


def first(broken):
    """A twist of the first answer alone."""
    calls = []

    def twisted(answer):
        calls.append(answer)
        return broken if len(calls) == 1 else answer

    return twisted


class Setting:
    """A learner's model, servers for it, and the policy that joins them."""

    def __init__(self, stack, tmp_path, kind, number=1, adapter=False, seconds=20.0, model=None):
        self.model, self.kind = model or llama(), kind
        self.servers, engines = [], []
        for _ in range(number):
            if kind == "sglang":
                server = SGLangServer(llama(seed=9))
                url = stack.enter_context(served(server))
                engines.append(SGLang(url, adapter=adapter, seconds=seconds))
            else:
                server = VLLMServer(llama(seed=9), serves=tmp_path / "current")
                url = stack.enter_context(served(server))
                engines.append(VLLM(url, model="tiny", adapter=adapter, seconds=seconds))
            self.servers.append(server)
        self.policy = ServerPolicy(
            engines, write=self.model.save_pretrained, directory=tmp_path, end_ids=[END],
            fingerprint="base", max_context=64, pauses=(0.0, 0.0),
        )  # fmt: skip
        stack.callback(self.policy.close)

    @property
    def server(self):
        return self.servers[0]

    def train(self, seed):
        self.model.load_state_dict(llama(seed=seed).state_dict())

    async def sample(self, prompt=(1, 2, 3), episode="e", sampling=TURN):
        return await self.policy.sample(prompt, sampling, episode=episode, seed=7)

    def gap(self, prompt, sampled, model=None):
        """max |p - q| against a plain pass of the learner's model."""
        with torch.no_grad():
            ids = torch.tensor([[*prompt, *sampled.ids]])
            logs = (model or self.model)(ids).logits[0].log_softmax(-1)
        return max(
            abs(math.exp(logs[len(prompt) + k - 1, token]) - math.exp(logq))
            for k, (token, logq) in enumerate(zip(sampled.ids, sampled.logprobs, strict=True))
        )


@pytest.fixture(params=["sglang", "vllm"])
def kind(request):
    return request.param


@pytest.fixture
def setting(tmp_path, kind):
    with ExitStack() as stack:

        def make(**options):
            return Setting(stack, tmp_path, kind, **options)

        yield make


async def test_what_comes_back_was_drawn_from_the_learners_weights(setting):
    here = setting()  # the server begins with other weights
    prompts = [(1, 2, 3), (4, 5), (6,)]
    made = await asyncio.gather(
        *(here.sample(prompt, episode=str(k)) for k, prompt in enumerate(prompts))
    )
    for prompt, sampled in zip(prompts, made, strict=True):
        assert here.gap(prompt, sampled) < 1e-5
        assert sampled.version == 0 and sampled.ended == (sampled.ids[-1] == END)
        assert len(sampled.ids) <= 12


async def test_the_context_bounds_a_turn(setting):
    here = setting()
    full = await here.sample(tuple(range(62)))
    assert len(full.ids) <= 2
    with pytest.raises(ModelError, match="64 are the limit"):
        await here.sample(tuple(range(64)))


async def test_forty_at_a_time(setting):
    here = setting(number=2)
    made = await asyncio.gather(
        *(
            here.sample((k + 1, 5), episode=str(k), sampling=Sampling(max_tokens=3))
            for k in range(40)
        )
    )
    assert all(here.gap((k + 1, 5), sampled) < 1e-5 for k, sampled in enumerate(made))
    path = GENERATE[here.kind]
    shares = [sum(asked == path for asked, _ in server.asked) for server in here.servers]
    assert sum(shares) == 40 and min(shares) >= 10


async def test_an_episode_stays_where_its_cache_is(setting):
    here = setting(number=3)
    for turn in range(5):
        await here.sample((1, 2, turn + 1), episode="one")
    path = GENERATE[here.kind]
    assert sorted(sum(p == path for p, _ in s.asked) for s in here.servers) == [0, 0, 5]
    here.policy.release("one")


class TestWeights:
    async def test_new_weights_are_taken_between_two_turns(self, setting, tmp_path):
        here = setting(number=2)
        await here.sample()
        old = copy.deepcopy(here.model)
        for server in here.servers:
            server.pause.clear()
        open_turns = [asyncio.create_task(here.sample(episode=str(k))) for k in range(4)]
        while sum(server.generating for server in here.servers) < 4:
            await asyncio.sleep(0.01)
        here.train(seed=1)
        renewal = asyncio.create_task(here.policy.renew("base+1", 1))
        while here.policy._open.is_set():  # the weights are being written
            await asyncio.sleep(0.01)
        late = asyncio.create_task(here.sample(episode="late"))
        await asyncio.sleep(0.1)
        assert not renewal.done() and not late.done()
        for server in here.servers:
            server.pause.set()
        await renewal
        assert (here.policy.fingerprint, here.policy.version) == ("base+1", 1)
        for sampled in await asyncio.gather(*open_turns):
            assert sampled.version == 0 and here.gap((1, 2, 3), sampled, old) < 1e-5
        sampled = await late
        assert sampled.version == 1 and here.gap((1, 2, 3), sampled) < 1e-5
        assert not any(server.overlapped for server in here.servers)
        kept = [path.name for path in tmp_path.iterdir() if path.name.startswith("version-")]
        assert len(kept) == 1 and (tmp_path / "current").resolve().name == kept[0]

    async def test_adapters_are_loaded_under_new_names(self, setting):
        here = setting(adapter=True)
        await here.sample()
        here.train(seed=2)
        await here.policy.renew("base+1", 1)
        sampled = await here.sample()
        assert here.gap((1, 2, 3), sampled) < 1e-5
        names = [name for name in here.server.loaded]
        assert len(set(names)) == 2 and here.server.adapters == (names[-1],)
        verbs = [path.split("/")[-1] for path, _ in here.server.asked]
        changes = [verb for verb in verbs if verb.endswith("adapter")]
        assert changes == ["load_lora_adapter", "load_lora_adapter", "unload_lora_adapter"]

    async def test_a_server_that_does_not_take_them_is_not_asked(self, setting):
        here = setting(number=2)
        await here.sample()
        here.servers[0].twist[LOAD[here.kind]] = lambda _: (500, "out of memory")
        here.train(seed=3)
        await here.policy.renew("base+1", 1)
        before = len(here.servers[0].asked)
        for k in range(4):
            sampled = await here.sample(episode=str(k))
            assert here.gap((1, 2, 3), sampled) < 1e-5
        assert len(here.servers[0].asked) == before
        here.servers[0].twist.clear()
        await here.policy.renew("base+2", 2)  # it is back
        await asyncio.gather(*(here.sample(episode=f"x{k}") for k in range(4)))
        assert len(here.servers[0].asked) > before

    @pytest.mark.parametrize("adapter", [False, True], ids=["weights", "adapters"])
    async def test_one_failed_answer_voids_no_update(self, setting, adapter):
        here = setting(adapter=adapter)
        await here.sample()
        path = (ADOPT if adapter else LOAD)[here.kind]
        here.server.twist[path] = first((503, "busy"))  # it did load them: the answer was lost
        here.train(seed=3)
        await here.policy.renew("base+1", 1)
        sampled = await here.sample()
        assert sampled.version == 1 and here.gap((1, 2, 3), sampled) < 1e-5
        if adapter:
            assert here.server.adapters == (here.server.loaded[-1],)

    async def test_adapters_that_cannot_be_unloaded_void_none_either(self, setting):
        here = setting(adapter=True)
        await here.sample()
        here.server.twist[DROP[here.kind]] = lambda _: (500, "no")
        drop, here.server.drop = here.server.drop, lambda body: None
        here.train(seed=3)
        await here.policy.renew("base+1", 1)
        assert here.gap((1, 2, 3), await here.sample()) < 1e-5
        assert len(here.server.adapters) == 2
        here.server.twist.clear()
        here.server.drop = drop
        await here.policy.renew("base+2", 2)
        assert here.server.adapters == (here.server.loaded[-1],)

    async def test_one_failed_turn_costs_nobody_the_adapters(self, setting):
        """The server may have been started again, so it loads them anew: not under open turns."""
        here = setting(adapter=True)
        await here.sample()
        here.server.pause.clear()
        slow = asyncio.create_task(here.sample(episode="slow"))
        while not here.server.generating:
            await asyncio.sleep(0.01)
        path = GENERATE[here.kind]
        here.server.twist[path] = first((500, "out of memory"))
        here.server.pause.set()
        made = await asyncio.gather(slow, *(here.sample(episode=str(k)) for k in range(4)))
        assert all(here.gap((1, 2, 3), sampled) < 1e-5 for sampled in made)
        assert len(here.server.loaded) == len(set(here.server.loaded)) == 2
        assert not here.server.overlapped

    async def test_a_server_that_lost_its_adapters_gets_them_again(self, setting):
        here = setting(adapter=True)
        await here.sample()
        here.server.adapters, here.server.model = (), llama(seed=9)  # started again
        assert here.gap((1, 2, 3), await here.sample()) < 1e-5

    async def test_stale_adapters_are_not_sampled_by_who_starts_again(self, setting, tmp_path):
        """In a container the next process may have the number of the one before."""
        here = setting(adapter=True)
        await here.sample()
        (stale,) = here.server.adapters
        here.train(seed=5)
        engines = [type(place.engine) for place in here.policy._places]
        options = {"model": "tiny"} if here.kind == "vllm" else {}
        again = ServerPolicy(
            [engines[0](here.policy._places[0].engine.url, adapter=True, **options)],
            write=here.model.save_pretrained, directory=tmp_path, end_ids=[END],
            fingerprint="base", max_context=64, pauses=(),
        )  # fmt: skip
        sampled = await again.sample([1, 2, 3], TURN, episode="e", seed=7)
        again.close()
        assert here.gap((1, 2, 3), sampled) < 1e-5
        named = here.server.asked[-1][1]
        assert named.get("lora_path", named.get("model")) not in {stale, None}

    async def test_none_takes_them(self, setting):
        here = setting()
        here.server.twist[LOAD[here.kind]] = lambda _: (500, "out of\nmemory")
        with pytest.raises(ModelError, match=r"no rollout server has the weights: .*out of memory"):
            await here.sample()


async def test_a_failed_flush_is_not_taken_for_an_update(tmp_path):
    """SGLang answers 200 and success false where its cache could not be dropped."""
    with ExitStack() as stack:
        here = Setting(stack, tmp_path, "sglang")
        here.server.twist["/update_weights_from_disk"] = lambda _: {
            "success": False,
            "message": "Cache flush failed after updating weights.",
        }
        with pytest.raises(ModelError, match="did not take the new weights: Cache flush failed"):
            await here.sample()


async def test_a_server_that_was_started_again_is_found_out(tmp_path):
    """It serves its first weights; SGLang names the weights of each answer."""
    with ExitStack() as stack:
        here = Setting(stack, tmp_path, "sglang")
        await here.sample()
        here.server.model, here.server.weight_version = llama(seed=9), "default"
        sampled = await here.sample()  # loaded anew, asked again
        assert here.gap((1, 2, 3), sampled) < 1e-5
        assert here.server.weight_version != "default"


class TestDown:
    async def test_another_server_goes_on_with_the_episode(self, setting):
        here = setting(number=2)
        await here.sample(episode="one")
        path = GENERATE[here.kind]
        (home,) = [s for s in here.servers if any(p == path for p, _ in s.asked)]
        home.twist[path] = lambda _: (503, "shutting down")
        sampled = await here.sample((1, 2, 3, 4), episode="one")
        assert here.gap((1, 2, 3, 4), sampled) < 1e-5

    @pytest.mark.parametrize(
        ("broken", "said"),
        [
            (lambda _: (500, "CUDA error:\nout of memory"), "HTTP 500: CUDA error: out of memory"),
            (lambda _: (429, "busy"), "HTTP 429: busy"),
            (lambda _: None, "cannot be reached"),
            (lambda _: (200, "<html>proxy</html>"), "did not answer in JSON: <html>"),
        ],
    )
    async def test_the_last_one_is_named_in_one_line(self, setting, broken, said):
        here = setting()
        await here.sample()
        here.server.twist[GENERATE[here.kind]] = broken
        with pytest.raises(ModelError, match=said) as caught:
            await here.sample()
        assert "\n" not in str(caught.value) and "127.0.0.1" in str(caught.value)
        here.server.twist.clear()
        assert here.gap((1, 2, 3), await here.sample()) < 1e-5  # and it is asked again

    async def test_nobody_listens(self, tmp_path):
        policy = ServerPolicy(
            [SGLang("http://127.0.0.1:9")], write=llama().save_pretrained, directory=tmp_path,
            end_ids=[END], fingerprint="base", max_context=64, pauses=(),
        )  # fmt: skip
        with pytest.raises(ModelError, match=r"http://127\.0\.0\.1:9/update_weights"):
            await policy.sample([1], TURN, episode="e", seed=0)

    async def test_a_server_that_hangs(self, setting):
        here = setting(seconds=0.5)
        await here.sample()
        here.server.pause.clear()
        with pytest.raises(ModelError, match="within"):
            await here.sample()


def choice(change):
    """A twist of vLLM's only choice."""

    def twisted(answer):
        change(answer["choices"][0])
        return answer

    return twisted


def meta(change):
    """A twist of SGLang's meta information."""

    def twisted(answer):
        change(answer["meta_info"])
        return answer

    return twisted


def put(where, *path):
    *path, value = path

    def change(thing):
        for key in path[:-1]:
            thing = thing[key]
        thing[path[-1]] = value

    return where(change)


def grow(answer):
    """Goes on after the end of the turn."""
    answer["output_ids"] = [5, END, 6]
    answer["meta_info"]["output_token_logprobs"] = [[-1.0, token, None] for token in (5, END, 6)]
    return answer


MISBEHAVIOUR = {
    "sglang": [
        (put(meta, "finish_reason", {"type": "abort", "message": "Abort"}), "threw the turn away"),
        (put(meta, "finish_reason", {"type": "magic"}), "unknown reason"),
        (put(meta, "finish_reason", None), "another format"),
        (put(meta, "output_token_logprobs", []), "other tokens than it gave log-probabilities"),
        (put(meta, "output_token_logprobs", 0, [None, 5, None]), "other tokens|are none"),
        (put(meta, "output_token_logprobs", 0, 0, None), "are none"),
        (put(meta, "output_token_logprobs", 0, 0, float("nan")), "are none"),
        (put(meta, "output_token_logprobs", 0, 0, 0.5), "above 0"),
        (put(meta, "prompt_tokens", 4), "read 4 prompt tokens, 3 were sent"),
        (lambda _: {"text": "hi"}, "another format"),
        (lambda _: {"meta_info": {}}, "another format"),
        (grow, "went on after the end"),
        (lambda _: (400, json.dumps({"error": {"message": "too long"}})), "too long"),
    ],
    "vllm": [
        (put(choice, "finish_reason", "abort"), "threw the turn away"),
        (put(choice, "logprobs", None), "another format"),
        (put(choice, "logprobs", "token_logprobs", [-1.0] * 99), "99 log-probabilities"),
        (put(choice, "logprobs", "token_logprobs", 0, None), "are none"),
        (put(choice, "token_ids", []), "gave 0 tokens"),
        (put(choice, "prompt_token_ids", [0, 1, 2, 3]), "another prompt"),
        (lambda _: {"choices": []}, "another format"),
        (lambda _: (400, "This model's maximum context length is 64"), "maximum context"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "twist", "said"),
    [(kind, *row) for kind, rows in MISBEHAVIOUR.items() for row in rows],
    indirect=["kind"],
)
async def test_an_answer_that_cannot_be_trained_on_is_refused(setting, kind, twist, said):
    here = setting()
    await here.sample()
    here.server.twist[GENERATE[kind]] = twist
    with pytest.raises(ModelError, match=said) as caught:
        await here.sample()
    assert "\n" not in str(caught.value)


async def test_a_trimmed_end_token_is_refused(setting):
    here = setting()
    await here.sample()

    def trim(answer):
        if here.kind == "sglang":
            answer["output_ids"] = [5]
            answer["meta_info"]["output_token_logprobs"] = [[-1.0, 5, None]]
            answer["meta_info"]["finish_reason"] = {"type": "stop", "matched": END}
        else:
            one = answer["choices"][0]
            one |= {"token_ids": [5], "finish_reason": "stop"}
            one["logprobs"] = {"token_logprobs": [-1.0], "tokens": ["token_id:5"]}
        return answer

    here.server.twist[GENERATE[here.kind]] = trim
    with pytest.raises(ModelError, match="without its end token"):
        await here.sample()


async def test_an_older_vllm_gives_ids_as_words(tmp_path):
    with ExitStack() as stack:
        here = Setting(stack, tmp_path, "vllm")
        here.server.twist["/v1/completions"] = choice(
            lambda one: [one.pop(key) for key in ("token_ids", "prompt_token_ids")]
        )
        assert here.gap((1, 2, 3), await here.sample()) < 1e-5
        here.server.twist["/v1/completions"] = choice(
            lambda one: (one.pop("token_ids"), one["logprobs"].update(tokens=["a", "b"]))
        )
        with pytest.raises(ModelError, match=r"0\.10\.2 or newer"):
            await here.sample()


@pytest.mark.parametrize(("kind", "lag"), [("sglang", 1), ("vllm", 0)], indirect=["kind"])
async def test_a_climb_over_servers(tmp_path, kind, lag):
    """Sampled there and trained here, with the probabilities of one and the same policy."""
    with ExitStack() as stack:
        here = []

        def make_policy(model, apart):
            here.append(Setting(stack, tmp_path / "engine", kind, number=2, model=model))
            return here[0].policy

        train = {"max_lag": lag, "max_mean_gap": 1.0}
        climb = make_climb(tmp_path / "run", 3, train, make_policy)
        rows = []
        await climb.run(tasks(), rows.append)
        assert [(row.update, row.episodes, row.invalid) for row in rows] == [
            (1, 24, 0),
            (2, 24, 0),
            (3, 24, 0),
        ]
        assert rows[0].max_abs_pq < 1e-5 and max(row.lag_max for row in rows) == lag
        if lag == 0:
            assert max(row.max_abs_pq for row in rows) < 1e-5
        assert len(here[0].server.loaded) == 4  # the base, and after each update
        assert not any(server.overlapped for server in here[0].servers)
