import itertools

import pytest
from episodes import FILES, READ, play, say
from hypothesis import given
from hypothesis import strategies as st

from tadpole import config
from tadpole.errors import ConfigError
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.compaction import REQUEST
from tadpole.leaf.conversations import left_out
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.outcome import StopReason
from tadpole.rl.batch import Sample, micro_batches
from tadpole.scripted import ScriptedPolicy, ScriptedSandbox
from tadpole.settings import LeafConfig, ProfileName
from tadpole.trace import Tokens, Trace

NOTES = "f is in a.py, line 2; it subtracts."
LOOK = [say("Glob", pattern=f"look {k}") for k in range(9)]


@pytest.fixture
def make_talk(make_tokenizer):
    profile = make_profile(ProfileName.COMPACT, CallFormat.HERMES)
    return lambda template: Dialogue(make_tokenizer(template), CallFormat.HERMES, profile)


@pytest.fixture
def talk(make_talk):
    return make_talk("chatml")


@pytest.fixture(params=["chatml", "qwen25", "qwen3"])
def any_talk(make_talk, request):
    return make_talk(request.param)


def text_of(talk, ids):
    return talk.tokenizer.decode(ids)


async def sizes(talk, turns):
    """Tokens of the context before each of ``turns``, without compaction."""
    policy = ScriptedPolicy(talk, turns)
    await play(policy, talk)
    return policy.prompts, [len(prompt) for prompt in policy.prompts]


async def test_the_policy_sums_up_and_goes_on(any_talk):
    talk = any_talk
    _, size = await sizes(talk, LOOK[:2])
    policy = ScriptedPolicy(talk, [LOOK[0], LOOK[1], NOTES, READ, "Fixed."])
    window = 4 * size[2]
    trace = await play(policy, talk, compaction_window=window, compaction_at=0.25)
    assert trace.stop is StopReason.AGENT and len(trace.compactions) == 1
    (event,) = trace.compactions
    assert (event.summary, event.text, event.dropped) == (NOTES, NOTES, 0)
    assert event.turn == 2 == len(trace.turns) - 2 and event.after < event.before
    assert event.before == size[2] == 0.25 * window
    assert [turn.text for turn in trace.turns] == [LOOK[0], LOOK[1], READ, "Fixed."]
    asked, again = policy.prompts[2], policy.prompts[3]
    assert text_of(talk, asked).count(REQUEST) == 1 and "look 1" in text_of(talk, asked)
    assert text_of(talk, again).count(NOTES) == 1 and "Fix f." in text_of(talk, again)
    assert REQUEST not in text_of(talk, again) and "look" not in text_of(talk, again)
    assert len(again) == event.after
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


async def test_every_sampled_token_is_in_one_segment_behind_what_the_policy_saw(any_talk):
    talk = any_talk
    said = [*LOOK[:3], NOTES, *LOOK[3:6], NOTES, "Done."]
    policy = ScriptedPolicy(talk, said, version=3)
    begin = len(talk.start("Fix f."))
    trace = await play(policy, talk, compaction_window=begin * 3, compaction_at=0.7)
    assert trace.stop is StopReason.AGENT and trace.compactions
    assert len(trace.segments) == 1 + 2 * len(trace.compactions)
    sampled = [talk.write(text) for text in [*said, "Done."][: len(policy.prompts)]]
    seen = list(zip(policy.prompts, sampled, strict=True))
    for tokens in trace.segments:
        at = tokens.loss_mask.index(1)
        while at < len(tokens.ids):
            if not tokens.loss_mask[at]:
                at += 1
                continue
            prompt, ids = seen.pop(0)
            assert tokens.ids[:at] == prompt
            assert list(tokens.ids[at : at + len(ids)]) == ids
            assert set(tokens.versions[at : at + len(ids)]) == {3}
            at += len(ids)
    assert not seen
    assert sum(sum(tokens.loss_mask) for tokens in trace.segments) == trace.generated_tokens


async def test_the_oldest_whole_turns_are_left_out(any_talk):
    talk = any_talk
    long = say("Bash", command="seq 120")
    policy = ScriptedPolicy(talk, [long, LOOK[0], LOOK[1], NOTES, "Done."])
    prompts, size = await sizes(talk, [long, LOOK[0], LOOK[1]])
    begin = size[0]
    window = int(size[3] / 0.9)
    trace = await play(policy, talk, compaction_window=window, compaction_at=0.9)
    (event,) = trace.compactions
    cost = len(talk.observe([], talk.turn_end, REQUEST)) - len(talk.observe([], talk.turn_end))
    most = max(1, window - cost - window // 5)
    turns = [after - before for before, after in itertools.pairwise(size)]
    assert event.dropped == left_out(begin, turns, most) >= 1
    asked = text_of(talk, policy.prompts[3])
    assert "\n119\n" not in asked and "look 1" in asked and REQUEST in asked
    kept = [token for k, turn in enumerate(turns) if k >= event.dropped
            for token in prompts[3][size[k] : size[k] + turn]]  # fmt: skip
    # The very tokens, spliced: all but the last generation prompt, which REQUEST comes before.
    assert list(policy.prompts[3][begin : begin + len(kept) - 10]) == kept[:-10]


async def test_one_result_that_fills_the_window_does_not_end_the_episode(talk):
    big = say("Bash", command="seq 2000")
    begin = len(talk.start("Fix f."))
    policy = ScriptedPolicy(talk, [big, NOTES, "Done."])
    trace = await play(policy, talk, compaction_window=begin * 3, max_context=begin * 4)
    (event,) = trace.compactions
    assert trace.stop is StopReason.AGENT and event.dropped == 1
    assert event.before > begin * 4 and max(map(len, policy.prompts)) < begin * 4
    assert "Fix f." in text_of(talk, policy.prompts[1])
    off = await play(ScriptedPolicy(talk, [big]), talk, max_context=begin * 4)
    assert off.stop is StopReason.MAX_CONTEXT_LEN and not off.compactions


async def test_a_window_above_the_hard_limit_asks_within_the_limit(talk):
    look = [LOOK[0], say("Bash", command="seq 100")]
    _, size = await sizes(talk, look)
    most = size[2] + 20  # what there is fits, but not with the request behind it
    policy = ScriptedPolicy(talk, [*look, NOTES, "Done."])
    window, at = most * 4, size[2] / (most * 4)
    trace = await play(policy, talk, compaction_window=window, compaction_at=at, max_context=most)
    assert trace.stop is StopReason.AGENT and len(trace.compactions) == 1
    assert trace.compactions[0].dropped == 2 and max(map(len, policy.prompts)) < most


async def test_a_summary_that_is_cut_counts_unless_it_is_all_reasoning(talk):
    begin = len(talk.start("Fix f."))
    limits = {"compaction_window": begin * 2, "compaction_at": 0.6}
    room = begin * 2 // 5
    cut = await play(ScriptedPolicy(talk, [LOOK[0], "word " * 900, "Done."]), talk, **limits)
    assert cut.stop is StopReason.AGENT and cut.compactions[0].generated_tokens == room
    assert cut.compactions[0].summary.startswith("word word")
    lost = await play(ScriptedPolicy(talk, [LOOK[0], "<think>" + "hm " * 900]), talk, **limits)
    assert lost.stop is StopReason.MAX_TOKENS_PER_TURN and len(lost.turns) == 1
    assert (lost.compactions[0].after, lost.compactions[0].summary) == (0, "")
    assert sum(sum(one.loss_mask) for one in lost.segments) == lost.generated_tokens


async def test_reasoning_does_not_go_into_the_summary(talk):
    begin = len(talk.start("Fix f."))
    said = [LOOK[0], f"<think>\nsecret\n</think>\n\n{NOTES}", "Done."]
    policy = ScriptedPolicy(talk, said)
    trace = await play(policy, talk, compaction_window=begin * 2, compaction_at=0.6)
    assert trace.compactions[0].summary == NOTES and "secret" in trace.compactions[0].text
    assert "secret" not in text_of(talk, policy.prompts[2])


async def test_a_full_window_is_summed_up_again_and_again_until_the_turns_end(talk):
    begin = len(talk.start("Fix f."))
    turns = [text for k in range(9) for text in (LOOK[k], f"notes {k}")]
    policy = ScriptedPolicy(talk, turns)
    trace = await play(policy, talk, compaction_window=begin * 2, compaction_at=0.5, max_turns=4)
    assert trace.stop is StopReason.MAX_TURNS
    assert [event.summary for event in trace.compactions] == ["notes 0", "notes 1", "notes 2"]
    assert "notes 0" not in text_of(talk, policy.prompts[4])  # only the last summary goes on


async def test_the_learner_trains_on_each_segment_with_its_own_prefix(talk):
    begin = len(talk.start("Fix f."))
    policy = ScriptedPolicy(talk, [LOOK[0], NOTES, READ, NOTES, "Done."])
    trace = await play(policy, talk, compaction_window=begin * 2, compaction_at=0.6)
    samples = [Sample(tokens, 0.5) for tokens in trace.segments]
    batches = list(micro_batches(samples, 65_536))
    assert sum(len(batch.target_N) for batch in batches) == trace.generated_tokens
    assert sorted(t for b in batches for t in b.target_N.tolist()) == sorted(
        i
        for tokens in trace.segments
        for i, m in zip(tokens.ids, tokens.loss_mask, strict=True)
        if m
    )


async def test_without_a_window_nothing_is_compacted(talk):
    policy = ScriptedPolicy(talk, [*LOOK[:4], "Done."])
    trace = await play(policy, talk)
    assert trace.compactions == () and trace.segments == (trace.tokens,)


def test_a_trace_of_one_segment_is_read_as_it_was_written():
    row = (
        '{"format":1,"task":"t","policy":"p","seed":1,"system":"s","statement":"x","turns":'
        '[{"text":"hi","generated_tokens":2}],"stop":"agent","tokens":{"ids":[1,2,3],"logprobs":'
        '[0,-1,-1],"loss_mask":[0,1,1],"versions":[-1,0,0]},"seconds":1.0,"error":""}'
    )
    trace = Trace.model_validate_json(row)
    assert trace.segments == (trace.tokens,) and trace.generated_tokens == 2
    assert isinstance(trace.tokens, Tokens) and trace.recoveries == 0


@pytest.mark.parametrize(("window", "at", "context"), [(2000, 0.8, 1600), (1000, 1.0, 900)])
def test_a_window_that_can_never_trigger_is_refused(window, at, context):
    flags = {
        "leaf.compaction_window": window, "leaf.compaction_at": at, "leaf.max_context": context
    }  # fmt: skip
    with pytest.raises(ConfigError, match="compaction can never happen") as error:
        config.load(flags)
    assert "\n" not in str(error.value) and "lower compaction_window" in str(error.value)
    assert config.load(flags | {"leaf.compaction_window": 1000, "leaf.compaction_at": 0.5})
    assert LeafConfig(max_context=context, compaction_window=0)
    with pytest.raises(ConfigError, match="4 leaves no token for a summary"):
        config.load({"leaf.compaction_window": 4})


@given(
    st.integers(0, 50), st.lists(st.integers(0, 30), max_size=8), st.integers(1, 120)
)  # fmt: skip
def test_as_few_turns_go_as_must(fixed, turns, most):
    gone = left_out(fixed, turns, most)
    assert gone == len(turns) or fixed + sum(turns[gone:]) <= most
    assert gone == 0 or fixed + sum(turns[gone - 1 :]) > most


async def test_the_sandbox_is_the_same_after_a_compaction(talk):
    begin = len(talk.start("Fix f."))
    sandbox = ScriptedSandbox(FILES)
    write = say("Write", file_path="new.txt", content="kept\n")
    policy = ScriptedPolicy(talk, [write, NOTES, say("Read", file_path="new.txt"), "Done."])
    trace = await play(
        policy, talk, sandbox=sandbox, compaction_window=begin * 2, compaction_at=0.5
    )
    assert "1. kept" in trace.turns[1].observations[0].text
    assert [change.path for change in await sandbox.delta()] == ["new.txt"]
    await sandbox.close()
