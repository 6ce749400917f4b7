import asyncio

import pytest

from tadpole.errors import ModelError
from tadpole.leaf.calls import CallFormat, render
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.guard import WARNING
from tadpole.leaf.loop import run_episode
from tadpole.leaf.profile import make_profile
from tadpole.leaf.tools import ToolName
from tadpole.outcome import StopReason
from tadpole.protocols import Sampled, Sampling
from tadpole.scripted import ScriptedPolicy, ScriptedSandbox
from tadpole.settings import LeafConfig, ProfileName
from tadpole.trace import ToolCall, Trace

FILES = {"a.py": "def f(x):\n    return x - 1\n"}


def say(tool, **arguments):
    return render(ToolCall(name=tool, arguments=arguments), CallFormat.HERMES)


READ = say("Read", file_path="a.py")
FIX = say("Edit", file_path="a.py", old_string="x - 1", new_string="x + 1")


@pytest.fixture
def talk(make_tokenizer):
    profile = make_profile(ProfileName.COMPACT, CallFormat.HERMES)
    return Dialogue(make_tokenizer("chatml"), CallFormat.HERMES, profile)


@pytest.fixture
def play(talk):
    """Run an episode of scripted turns; the sandbox and the policy stay for looking at."""
    boxes = []

    async def run(
        turns, *, policy=None, sandbox=None, dialogue=None, on_cancel=None, seed=1, **limits
    ):
        run.sandbox = sandbox or ScriptedSandbox(FILES)
        boxes.append(run.sandbox)
        run.policy = policy or ScriptedPolicy(talk, turns, version=3)
        return await run_episode(
            task_id="t1", statement="Fix f.", sandbox=run.sandbox, policy=run.policy,
            dialogue=dialogue or talk, settings=LeafConfig(**limits), sampling=Sampling(),
            episode="e1", seed=seed, on_cancel=on_cancel,
        )  # fmt: skip

    yield run
    for box in boxes:
        asyncio.run(box.close())


async def test_an_agent_that_reads_edits_and_stops(play, talk):
    trace = await play([f"Let me look.\n{READ}", FIX, "Fixed."])
    assert trace.stop is StopReason.AGENT and trace.error == ""
    assert [turn.calls[0].name for turn in trace.turns[:2]] == ["Read", "Edit"]
    assert trace.turns[0].observations[0].text == "a.py\n1. def f(x):\n2.     return x - 1"
    assert trace.turns[1].observations[0].text == "Edited a.py (1 replacement)."
    assert trace.turns[2].text == "Fixed." and not trace.turns[2].calls
    (change,) = await play.sandbox.delta()
    assert change.content == b"def f(x):\n    return x + 1\n"
    assert play.policy.released == ["e1"]
    assert (trace.task, trace.policy, trace.seed) == ("t1", "scripted-3", 1)
    assert trace.statement == "Fix f." and trace.system == talk.system
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


async def test_tokens_are_exactly_what_was_seen_and_sampled(play, talk):
    trace = await play([READ, FIX, "Fixed."])
    tokens, sampled = trace.tokens, [talk.write(text) for text in (READ, FIX, "Fixed.")]
    assert [i for i, m in zip(tokens.ids, tokens.loss_mask, strict=True) if m] == [
        i for turn in sampled for i in turn
    ]
    assert sum(tokens.loss_mask) == trace.generated_tokens
    for mask, log, version in zip(tokens.loss_mask, tokens.logprobs, tokens.versions, strict=True):
        assert (log, version) == ((-0.5, 3) if mask else (0.0, -1))
    prompts = play.policy.prompts
    for before, turn, after in zip(prompts, sampled, prompts[1:], strict=False):
        assert after[: len(before) + len(turn)] == (*before, *turn)
    assert tokens.ids == (*prompts[-1], *sampled[-1])
    assert talk.tokenizer.decode(tokens.ids).endswith("Fixed.<|im_end|>")


async def test_several_calls_of_a_turn_run_in_order(play):
    broken = "<tool_call>\n{broken\n</tool_call>"
    trace = await play([f"{FIX}\n{READ}\n{broken}", "Done."])
    one, two, three = trace.turns[0].observations
    assert one.text.startswith("Edited") and "x + 1" in two.text
    assert three.error and three.text.startswith("InvalidToolCall: ") and "column 2" in three.text
    assert len(play.sandbox.calls) == 2


async def test_the_models_mistakes_are_observations(play):
    trace = await play([say("Delete", x=1), say("Read"), say("Read", file_path="b.py"), "Done."])
    texts = [turn.observations[0].text for turn in trace.turns[:3]]
    assert "unknown tool Delete; use one of Read" in texts[0]
    assert "file_path is missing" in texts[1] and "a.py" in texts[2]
    assert all(turn.observations[0].error for turn in trace.turns[:3])
    assert trace.stop is StopReason.AGENT


async def test_only_the_given_tools_run(play, talk):
    few = (ToolName.READ, ToolName.EDIT)
    profile = make_profile(ProfileName.COMPACT, CallFormat.HERMES, few)
    dialogue = Dialogue(talk.tokenizer, CallFormat.HERMES, profile)
    trace = await play([say("Bash", command="touch x"), "Done."], dialogue=dialogue)
    assert "use one of Read, Edit" in trace.turns[0].observations[0].text
    assert play.sandbox.calls == []


# --- every ending ----------------------------------------------------------------------------


async def test_max_turns(play):
    trace = await play([READ, FIX, READ], max_turns=2)
    assert trace.stop is StopReason.MAX_TURNS and len(trace.turns) == 2
    assert trace.turns[1].observations[0].text.startswith("Edited")  # the last turn still acts


async def test_max_tokens_per_turn_executes_nothing(play, talk):
    trace = await play([READ, f"{FIX}\n{READ}"], max_tokens_per_turn=len(talk.write(FIX)) + 3)
    assert trace.stop is StopReason.MAX_TOKENS_PER_TURN
    assert len(trace.turns) == 2 and trace.turns[1].text.startswith(FIX)
    assert trace.turns[1].calls == () and len(play.sandbox.calls) == 1
    assert sum(trace.tokens.loss_mask) == trace.generated_tokens


async def test_max_context_within_a_turn(play, talk):
    most = len(talk.start("Fix f.")) + 5
    trace = await play([READ], max_context=most)
    assert trace.stop is StopReason.MAX_CONTEXT_LEN
    assert len(trace.tokens.ids) == most and trace.turns[0].generated_tokens == 5


async def test_max_context_by_a_result(play, talk):
    most = len(talk.start("Fix f.")) + len(talk.write(READ)) + 10
    trace = await play([READ], max_context=most)
    assert trace.stop is StopReason.MAX_CONTEXT_LEN and len(trace.tokens.ids) <= most
    assert trace.turns[0].observations[0].text.startswith("a.py")


async def test_max_context_by_the_statement(play):
    trace = await play([READ], max_context=5)
    assert trace.stop is StopReason.MAX_CONTEXT_LEN and trace.turns == ()


class SlowPolicy(ScriptedPolicy):
    async def sample(self, *args, **kwargs):
        if len(self.prompts) == 1:
            await asyncio.sleep(600)
        return await super().sample(*args, **kwargs)


async def test_max_time_while_sampling(play, talk):
    trace = await play([], policy=SlowPolicy(talk, [READ]), max_seconds=0.5)
    assert trace.stop is StopReason.MAX_TIME
    assert len(trace.turns) == 1 and trace.turns[0].observations


async def test_max_time_in_a_command(play):
    slow = say("Bash", command="echo begun; sleep 600", timeout=900)
    trace = await play([f"{slow}\n{READ}"], max_seconds=1.0)
    assert trace.stop is StopReason.MAX_TIME
    (only,) = trace.turns[0].observations
    assert only.text.startswith("Timed out") and "begun" in only.text
    assert len(trace.turns[0].calls) == 2


async def test_loop_is_warned_once_then_ended(play):
    trace = await play([READ] * 9)
    assert trace.stop is StopReason.LOOP and len(trace.turns) == 4
    texts = [turn.observations[0].text for turn in trace.turns]
    assert [WARNING in text for text in texts] == [False, False, True, False]
    assert talk_of(play, 3).count("repeating yourself") == 1


BAD = "<tool_call>\n{broken\n</tool_call>"
GLOB = say("Glob", pattern="*")
EDITS = [say("Write", file_path="n", content=str(k)) for k in range(9)]


@pytest.mark.parametrize(
    ("turns", "stop", "warned"),
    [
        pytest.param([READ, GLOB] * 9, StopReason.LOOP, 4, id="A-B-A-B"),
        pytest.param([BAD] * 9, StopReason.LOOP, 3, id="malformed"),
        pytest.param([say("Nope", x=1)] * 9, StopReason.LOOP, 3, id="the same mistake"),
        pytest.param([f"{READ}\n" * 5, GLOB, "Done."], StopReason.AGENT, 1, id="in one turn"),
        pytest.param(
            [say("Bash", command="cat n; echo x >> n")] * 6, StopReason.AGENT, 0, id="polling"
        ),
        pytest.param(
            [turn for edit in EDITS[:3] for turn in (edit, READ)], StopReason.AGENT, 0, id="work"
        ),
    ],
)
async def test_what_is_a_loop_and_what_is_not(play, turns, stop, warned):
    trace = await play(turns)
    assert trace.stop is stop
    told = [
        k
        for k, turn in enumerate(trace.turns, 1)
        if any(WARNING in seen.text for seen in turn.observations)
    ]
    assert told == ([warned] if warned else [])
    if stop is StopReason.LOOP:
        assert len(trace.turns) == warned + 1 and trace.turns[-1].observations


async def test_one_result_does_not_fill_a_compact_window(play):
    """A 20,000-character Read ended an episode of a few hundred tokens."""
    files = {"a.py": "def f(x):\n    return x\n" * 1000}
    limits = {"max_context": 2400, "profile": ProfileName.COMPACT}
    for look in (READ, say("Bash", command="cat a.py")):
        trace = await play([look, "Done."], sandbox=ScriptedSandbox(files), **limits)
        assert trace.stop is StopReason.AGENT
        assert len(trace.turns[0].observations[0].text) < 2600
        assert "max_chars" not in trace.turns[0].calls[0].arguments  # what the policy asked
    assert "[truncated" in trace.turns[0].observations[0].text
    full = await play([READ, "Done."], sandbox=ScriptedSandbox(files), max_context=2400)
    assert full.stop is StopReason.MAX_CONTEXT_LEN
    assert 19_000 < len(full.turns[0].observations[0].text) < 20_200  # the contract's limit


def talk_of(play, k):
    return play.policy._dialogue.tokenizer.decode(play.policy.prompts[k])


async def test_llm_query_error_keeps_the_steps(play):
    trace = await play([READ, ModelError("the server went away")])
    assert trace.stop is StopReason.LLM_QUERY_ERROR and trace.error == "the server went away"
    assert len(trace.turns) == 1 and trace.turns[0].observations
    assert play.policy.released == ["e1"]


@pytest.mark.parametrize(
    ("sampled", "words"),
    [
        (Sampled((), (), True, 0), "0 tokens"),
        (Sampled((300, 301), (-1.0,), True, 0), "2 tokens with 1 log-prob"),
        (None, "cut before its end token"),
    ],
)
async def test_a_policy_that_breaks_the_contract(play, talk, sampled, words):
    ids = tuple(talk.write(READ)[:-1])
    odd = sampled or Sampled(ids, (-1.0,) * len(ids), True, 0)  # says "ended" without an end

    class Odd(ScriptedPolicy):
        async def sample(self, *args, **kwargs):
            return odd

    trace = await play([], policy=Odd(talk, []))
    assert trace.stop is StopReason.LLM_QUERY_ERROR and words in trace.error


async def test_tool_error_keeps_the_step(play):
    sandbox = ScriptedSandbox(FILES, dies_at=1)
    trace = await play([f"{READ}\n{FIX}"], sandbox=sandbox)
    assert trace.stop is StopReason.TOOL_ERROR and "die" in trace.error
    assert len(trace.turns[0].calls) == 2 and len(trace.turns[0].observations) == 1


async def test_cancelled_hands_over_what_there_is(play, talk):
    kept = []
    policy = SlowPolicy(talk, [READ])
    task = asyncio.create_task(play([], policy=policy, on_cancel=kept.append))
    while len(policy.prompts) < 1:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (trace,) = kept
    assert trace.stop is StopReason.CANCELLED and len(trace.turns) == 1
    assert trace.turns[0].observations and policy.released == ["e1"]


async def test_an_error_that_is_no_ending_keeps_the_steps_too(play):
    kept = []
    with pytest.raises(RuntimeError, match="out of memory"):
        await play([READ, RuntimeError("out of memory")], on_cancel=kept.append)
    (trace,) = kept
    assert trace.stop is StopReason.CANCELLED and trace.error == "RuntimeError: out of memory"
    assert trace.turns[0].observations and play.policy.released == ["e1"]


@pytest.mark.parametrize(
    "arguments",
    ['{"file_path": "\\ud83d"}', f'{{"limit": {"9" * 5000}}}', "[" * 300 + "]" * 300],
    ids=["half a character", "a giant number", "nested"],
)
async def test_whatever_json_a_policy_writes_the_episode_goes_on_and_can_be_kept(play, arguments):
    call = f'<tool_call>\n{{"name": "Read", "arguments": {arguments}}}\n</tool_call>'
    trace = await play([call, FIX, "Done."])
    assert trace.stop is StopReason.AGENT and trace.turns[0].observations[0].error
    assert trace.turns[1].observations[0].text.startswith("Edited")
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


# --- the rest --------------------------------------------------------------------------------


async def test_every_turn_gets_a_seed_of_its_own(play, talk):
    seeds = []

    class Noting(ScriptedPolicy):
        async def sample(self, prompt_ids, sampling, *, episode, seed):
            seeds.append(seed)
            return await super().sample(prompt_ids, sampling, episode=episode, seed=seed)

    for seed in (1, 1, 2):
        await play([], policy=Noting(talk, [READ, FIX]), seed=seed)
    assert seeds[:3] == seeds[3:6] and len({*seeds[:3], *seeds[6:]}) == 6
    assert all(0 <= seed < 2**32 for seed in seeds)


async def test_the_real_output_of_bash_reaches_the_policy(play):
    trace = await play([say("Bash", command="python3 a.py && echo fine", timeout="20"), "Done."])
    assert trace.turns[0].observations[0].text == "Exit code: 0\nSTDOUT:\nfine\n\nSTDERR:\n"
    assert "STDOUT:\nfine" in talk_of(play, 1)
