"""The same loop over messages: guard, endings, context and compaction are those of tokens."""

import asyncio
import json

import pytest
from episodes import FILES, FIX, READ, play, say

from tadpole.errors import ContextFull, ModelError
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.compaction import REQUEST
from tadpole.leaf.conversations.chat import ChatConversation, ChatDialogue, estimate
from tadpole.leaf.guard import WARNING
from tadpole.leaf.profile import make_profile
from tadpole.outcome import StopReason
from tadpole.protocols import Reply
from tadpole.scripted import ScriptedChat, ScriptedSandbox
from tadpole.settings import ProfileName
from tadpole.trace import Tokens, ToolCall, Trace

FULL = ChatDialogue(make_profile(ProfileName.FULL, CallFormat.HERMES))


def native(*calls, text="", **more):
    return Reply(text, calls=tuple(calls), **more)


def tool(name, call_id="", **arguments):
    return ToolCall(name=name, arguments=arguments, call_id=call_id)


LOOK = tool("Read", "r", file_path="a.py")
EDIT = tool("Edit", "e", file_path="a.py", old_string="x - 1", new_string="x + 1")


async def test_native_calls_run_and_their_results_go_back_by_id():
    model = ScriptedChat([native(LOOK, EDIT, text="I look.", reasoning="hm"), "Fixed."])
    sandbox = ScriptedSandbox(FILES)
    trace = await play(model, FULL, sandbox=sandbox)
    assert trace.stop is StopReason.AGENT and trace.policy == "scripted-chat"
    first, second = trace.turns
    assert (first.text, first.reasoning, second.text) == ("I look.", "hm", "Fixed.")
    assert [one.name for one in first.calls] == ["Read", "Edit"]
    assert first.observations[0].text.startswith("a.py\n1. def f")
    (change,) = await sandbox.delta()
    assert change.content == b"def f(x):\n    return x + 1\n"
    system, user, assistant, one, two = model.asked[1]
    assert system == {"role": "system", "content": FULL.system} and user["content"] == "Fix f."
    assert assistant["content"] == "I look." and assistant["reasoning_content"] == "hm"
    assert [c["id"] for c in assistant["tool_calls"]] == ["r", "e"]
    assert json.loads(assistant["tool_calls"][1]["function"]["arguments"]) == EDIT.arguments
    assert (one["role"], one["tool_call_id"]) == ("tool", "r") and "1. def f" in one["content"]
    assert two["tool_call_id"] == "e" and two["content"].startswith("Edited")
    assert [schema["function"]["name"] for schema in model.told[0]] == [
        "Read", "Write", "Edit", "Glob", "Bash",
    ]  # fmt: skip
    assert trace.tokens == Tokens() and trace.segments == (Tokens(),)
    await sandbox.close()


async def test_calls_in_the_text_are_read_where_the_server_parses_none():
    said = f"<think>\nhm\n</think>\n{READ}"
    model = ScriptedChat([said, FIX, "Fixed."])
    trace = await play(model, FULL)
    assert trace.stop is StopReason.AGENT and trace.turns[0].reasoning == "hm"
    assert trace.turns[1].observations[0].text == "Edited a.py (1 replacement)."
    _, _, assistant, user = model.asked[1]
    assert assistant == {"role": "assistant", "content": said}
    assert user["role"] == "user" and user["content"].startswith("<tool_response>\na.py")


async def test_a_broken_native_call_is_told_and_goes_back_without_its_arguments():
    broken = ToolCall(name="Read", error="the call is not valid JSON at column 9: x")
    model = ScriptedChat([native(broken, LOOK), "Done."])
    trace = await play(model, FULL)
    one, two = trace.turns[0].observations
    assert one.error and one.text == "InvalidToolCall: " + broken.error
    assert two.text.startswith("a.py")
    sent = model.asked[1][2]["tool_calls"]
    assert sent[0]["function"] == {"name": "Read", "arguments": "{}"}
    assert sent[0]["id"] and model.asked[1][3]["tool_call_id"] == sent[0]["id"] != sent[1]["id"]


async def test_half_an_emoji_of_a_server_is_kept_as_a_question_mark():
    model = ScriptedChat([native(LOOK, text="x\ud83d", reasoning="y\ud83d"), "Fixed \ud83d"])
    trace = await play(model, FULL)
    assert [turn.text for turn in trace.turns] == ["x?", "Fixed ?"]
    assert trace.turns[0].reasoning == "y?"
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


# --- every ending ----------------------------------------------------------------------------


async def stop_of(replies, **limits):
    trace = await play(ScriptedChat(replies), FULL, **limits)
    return trace.stop, trace


async def test_limits():
    assert (await stop_of([native(LOOK)] * 3, max_turns=2))[0] is StopReason.MAX_TURNS
    stop, trace = await stop_of([native(LOOK, ended=False)])
    assert stop is StopReason.MAX_TOKENS_PER_TURN
    assert trace.turns[0].calls == () and trace.turns[0].observations == ()
    full = native(LOOK, ended=False, prompt_tokens=3000, generated_tokens=1000)
    assert (await stop_of([full], max_context=4000))[0] is StopReason.MAX_CONTEXT_LEN
    stop, trace = await stop_of([native(LOOK), ContextFull("too long")])
    assert stop is StopReason.MAX_CONTEXT_LEN and trace.turns[0].observations and not trace.error
    stop, trace = await stop_of([ContextFull("too long")])  # never: a setting, not an attempt
    assert stop is StopReason.LLM_QUERY_ERROR and "lower leaf.max_context" in trace.error
    stop, trace = await stop_of([native(LOOK), ModelError("the server went away")])
    assert stop is StopReason.LLM_QUERY_ERROR and trace.error == "the server went away"
    assert len(trace.turns) == 1 and trace.turns[0].observations


async def test_context_is_counted_from_the_usage():
    """The estimate alone would see nothing wrong; the server's count ends the episode."""
    small = native(LOOK, prompt_tokens=100, generated_tokens=20)
    large = native(EDIT, prompt_tokens=3900, generated_tokens=90)
    model = ScriptedChat([small, large, "Done."])
    trace = await play(model, FULL, max_context=4000, max_tokens_per_turn=8000)
    assert trace.stop is StopReason.MAX_CONTEXT_LEN and len(trace.turns) == 2
    assert [turn.generated_tokens for turn in trace.turns] == [20, 90]
    result = estimate(trace.turns[0].observations[0].text)
    assert model.samplings[1].max_tokens == 4000 - 120 - result
    free = ScriptedChat([native(LOOK), "Done."])
    trace = await play(free, FULL, max_context=4000)
    assert trace.stop is StopReason.AGENT and trace.turns[0].generated_tokens > 0


async def test_the_loop_guard():
    stop, trace = await stop_of([native(LOOK)] * 9)
    assert stop is StopReason.LOOP and len(trace.turns) == 4
    assert [WARNING in turn.observations[0].text for turn in trace.turns] == [
        False, False, True, False,
    ]  # fmt: skip


async def test_time_and_cancellation():
    class Slow(ScriptedChat):
        async def reply(self, *args, **kwargs):
            if self.asked:
                await asyncio.sleep(600)
            return await super().reply(*args, **kwargs)

    trace = await play(Slow([native(LOOK)]), FULL, max_seconds=0.5)
    assert trace.stop is StopReason.MAX_TIME and trace.turns[0].observations
    kept, slow = [], Slow([native(LOOK)])
    task = asyncio.create_task(play(slow, FULL, on_cancel=kept.append))
    while not slow.asked:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kept[0].stop is StopReason.CANCELLED and kept[0].turns[0].observations


async def test_tool_error():
    sandbox = ScriptedSandbox(FILES, dies_at=1)
    trace = await play(ScriptedChat([native(LOOK, EDIT)]), FULL, sandbox=sandbox)
    await sandbox.close()
    assert trace.stop is StopReason.TOOL_ERROR and len(trace.turns[0].observations) == 1


# --- compaction --------------------------------------------------------------------------------


@pytest.mark.parametrize("usage", [True, False])
async def test_the_policy_sums_up_and_goes_on(usage):
    begin = 1000 if usage else ChatConversation(None, FULL, statement="Fix f.").size
    counts = {"prompt_tokens": begin, "generated_tokens": 20} if usage else {}
    big = tool("Bash", "b", command="seq 700")  # some 900 tokens
    model = ScriptedChat([native(big, **counts), "f is in a.py", native(EDIT), "Fixed."])
    window = int((begin + 800) / 0.85)
    trace = await play(model, FULL, compaction_window=window, compaction_at=0.85)
    assert trace.stop is StopReason.AGENT and len(trace.turns) == 3
    (event,) = trace.compactions
    assert (event.turn, event.dropped, event.summary) == (1, 1, "f is in a.py")
    assert event.before > begin + 800 > event.after > 0
    request = model.asked[1]
    assert [message["role"] for message in request] == ["system", "user"]
    assert request[1]["content"] == f"Fix f.\n\n{REQUEST}"
    system, user = model.asked[2]
    assert system["role"] == "system" and user["content"].startswith("Fix f.\n\n")
    assert user["content"].endswith("f is in a.py")
    assert len(model.asked[3]) == 4  # only what came after the summary


async def test_recent_turns_are_still_there_when_the_summary_is_asked_for():
    begin = ChatConversation(None, FULL, statement="Fix f.").size
    big = tool("Bash", "b", command="seq 500")
    model = ScriptedChat([native(big), "notes", native(EDIT), "Fixed."])
    trace = await play(model, FULL, compaction_window=3 * begin, compaction_at=0.5)
    (event,) = trace.compactions
    assert event.dropped == 0
    roles = [message["role"] for message in model.asked[event.turn]]
    assert roles[-3:] == ["assistant", "tool", "user"]
    assert model.asked[event.turn][-1]["content"] == REQUEST
    in_text = ScriptedChat([say("Bash", command="seq 500"), "notes", FIX, "Fixed."])
    trace = await play(in_text, FULL, compaction_window=3 * begin, compaction_at=0.5)
    asked = in_text.asked[trace.compactions[0].turn]
    assert [message["role"] for message in asked][-2:] == ["assistant", "user"]
    assert asked[-1]["content"].startswith("<tool_response>")
    assert asked[-1]["content"].endswith(REQUEST)
