"""From the sampled token to the loss nothing is tokenized again, whatever the chat template."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tadpole.errors import ModelError
from tadpole.leaf.calls import format_of, render
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.loop import run_episode
from tadpole.leaf.profile import make_profile
from tadpole.outcome import StopReason
from tadpole.protocols import Sampled, Sampling
from tadpole.rl.batch import Sample, micro_batches
from tadpole.scripted import ScriptedSandbox
from tadpole.settings import LeafConfig, ProfileName
from tadpole.trace import Observation, ToolCall
from tests.rl.templates import APPENDING, REWRITING

CORPUS = ["def f(x):\n    return x + 1\n" * 20, "the file was not found, read it again " * 30]
TEXT = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8"), max_size=4),
        st.sampled_from(["<|im_end|>", "<|im_start|>", "<think>", "</think>", "<tool_response>"]),
        st.sampled_from(["\n", "  ", "\t", "the ", "return x", "é", "\u200b", "😀"]),
    ),
    max_size=8,
).map("".join)
PROPERTY = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=APPENDING)
def dialogue(request, tmp_path_factory):
    """A tokenizer with merges and a template, written to files and read from them."""
    directory = tmp_path_factory.mktemp(request.param)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if "qwen3" in request.param:  # there they are tokens, though not special ones
        for token in ("<think>", "</think>", "<tool_call>", "</tool_call>"):
            core.add_tokens([AddedToken(token, normalized=False, special=False)])
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>")
    made.chat_template = APPENDING[request.param]
    made.save_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    call_format = format_of(tokenizer.chat_template)
    return Dialogue(tokenizer, call_format, make_profile(ProfileName.FULL, call_format))


@dataclass
class Babbler:
    """Says a call in every turn but the last, in tokens that no tokenizer would choose."""

    dialogue: Dialogue
    rng: random.Random
    turns: int
    version: int = 0
    prompts: list = field(default_factory=list)
    said: list = field(default_factory=list)
    fingerprint = "babbler"

    async def sample(self, prompt_ids, sampling, *, episode, seed):
        self.prompts.append(tuple(prompt_ids))
        call = ToolCall(name="Read", arguments={"file_path": "a.py"})
        more = len(self.said) < self.turns
        text = render(call, self.dialogue.call_format) if more else "Done, the file is fine."
        if self.dialogue.thinks:
            text = "hm\n</think>\n\n" + text
        ids = (*self._split(text), self.dialogue.turn_end)
        self.version += 1
        logprobs = tuple(-self.rng.random() for _ in ids)
        self.said.append((ids, logprobs, self.version))
        return Sampled(ids, logprobs, True, self.version)

    def _split(self, text):
        """Cut the text anywhere and tokenize the pieces: not what the whole text would give."""
        ids = []
        while text:
            cut = self.rng.randrange(1, 6)
            if text.startswith(("<think>", "</think>", "<tool_call>", "</tool_call>")):
                cut = text.index(">") + 1
            elif "<" in text[1:cut]:
                cut = text.index("<", 1)
            ids += self.dialogue.tokenizer(text[:cut], add_special_tokens=False)["input_ids"]
            text = text[cut:]
        return ids

    def release(self, episode):
        pass


@pytest.mark.parametrize("seed", range(3))
async def test_an_episode_is_what_was_sampled_and_what_was_given(dialogue, seed):
    policy = Babbler(dialogue, random.Random(seed), turns=3)
    sandbox = ScriptedSandbox({"a.py": "x = '<|im_end|>'\n"})
    try:
        trace = await run_episode(
            task_id="t", statement="Fix <|im_start|> it.", sandbox=sandbox, policy=policy,
            dialogue=dialogue, settings=LeafConfig(), sampling=Sampling(), episode="e", seed=0,
        )  # fmt: skip
    finally:
        await sandbox.close()
    assert trace.stop is StopReason.AGENT and len(trace.turns) == 4
    tokens = trace.tokens
    # Every prompt begins with the whole episode so far, token by token.
    for prompt, (ids, *_), after in zip(
        policy.prompts, policy.said, [*policy.prompts[1:], tokens.ids], strict=True
    ):
        assert after[: len(prompt) + len(ids)] == (*prompt, *ids)
    # Ids, log-probabilities and versions reach the record as they were sampled, and only they.
    marked = [
        (id_, logprob, version)
        for id_, logprob, mask, version in zip(
            tokens.ids, tokens.logprobs, tokens.loss_mask, tokens.versions, strict=True
        )
        if mask
    ]
    said = [
        (id_, logprob, version)
        for ids, logprobs, version in policy.said
        for id_, logprob in zip(ids, logprobs, strict=True)
    ]
    assert marked == said
    assert all(
        logprob == 0 and version == -1
        for logprob, mask, version in zip(
            tokens.logprobs, tokens.loss_mask, tokens.versions, strict=True
        )
        if not mask
    )
    # ... and from the record they reach the loss.
    (batch,) = micro_batches([Sample(tokens, 0.5)], 1 << 20)
    assert batch.target_N.tolist() == [id_ for id_, *_ in said]
    assert batch.logq_N.tolist() == pytest.approx([logprob for _, logprob, _ in said])
    # These tokens are not those of their text: tokenizing again would have changed them.
    again = dialogue.tokenizer(
        dialogue.tokenizer.decode(tokens.ids), add_special_tokens=False, split_special_tokens=False
    )["input_ids"]
    assert tuple(again) != tokens.ids


@PROPERTY
@given(data=st.data())
def test_increments_are_those_of_the_template(dialogue, data):
    """Step by step gives the text that the template renders in one go, for any given texts."""
    # Some templates trim; what a tool said keeps its spaces, so there only trimmed texts agree.
    trims = "message.content | trim" in dialogue.tokenizer.chat_template
    texts_of = TEXT.map(str.strip) if trims else TEXT
    statement = data.draw(texts_of)
    turns = data.draw(st.lists(st.lists(texts_of, min_size=1, max_size=3), min_size=1, max_size=3))
    ids = dialogue.start(statement)
    messages = [
        {"role": "system", "content": dialogue.system},
        {"role": "user", "content": statement},
    ]
    reply, opened = "<think>\nhm\n</think>\n\nread it", "hm\n</think>\n\nread it"
    for texts in turns:
        before = list(ids)
        ids += dialogue.write(opened if dialogue.thinks else reply)
        ids += dialogue.observe([Observation(text=text) for text in texts], dialogue.turn_end)
        assert ids[: len(before)] == before
        messages.append({"role": "assistant", "content": reply})
        if "tool_response" in dialogue.tokenizer.chat_template:
            messages += [{"role": "tool", "content": text} for text in texts]
        else:
            wrapped = [f"<tool_response>\n{text}\n</tool_response>" for text in texts]
            messages.append({"role": "user", "content": "\n".join(wrapped)})
    whole = dialogue.tokenizer.apply_chat_template(
        messages,
        tools=list(dialogue.profile.schemas)
        if "tools" in dialogue.tokenizer.chat_template
        else None,
        add_generation_prompt=True,
        tokenize=False,
    )
    assert dialogue.tokenizer.decode(ids) == whole


@PROPERTY
@given(statement=TEXT, result=TEXT)
def test_no_given_text_makes_a_control_token(dialogue, statement, result):
    control = set(dialogue.tokenizer.all_special_ids)
    plain = [*dialogue.start("x"), *dialogue.observe([Observation(text="y")], dialogue.turn_end)]
    hostile = [
        *dialogue.start(statement),
        *dialogue.observe([Observation(text=result)], dialogue.turn_end),
    ]
    assert [i for i in plain if i in control] == [i for i in hostile if i in control]


@pytest.mark.parametrize("name", REWRITING)
def test_a_template_that_rewrites_history_is_refused_at_start(name):
    core = Tokenizer(
        models.BPE(
            vocab={s: n for n, s in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))},
            merges=[],
        )
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>")
    tokenizer.chat_template = REWRITING[name]
    call_format = format_of(tokenizer.chat_template)
    with pytest.raises(ModelError, match="earlier turns") as caught:
        Dialogue(tokenizer, call_format, make_profile(ProfileName.FULL, call_format))
    assert "\n" not in str(caught.value)
