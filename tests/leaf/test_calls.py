import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tadpole.leaf import reasoning
from tadpole.leaf.calls import CallFormat, format_of, native, parse, render
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.settings import ProfileName
from tadpole.trace import ToolCall

HERMES, XML = CallFormat.HERMES, CallFormat.QWEN_XML
READ = '{"name": "Read", "arguments": {"file_path": "a.py"}}'
READ_XML = "<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n</function>"
SOUND = ToolCall(name="Read", arguments={"file_path": "a.py"})
REPAIRED = SOUND.model_copy(update={"repaired": True})


def tagged(*bodies):
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


@pytest.mark.parametrize(
    ("form", "text", "calls"),
    [
        (HERMES, tagged(READ), [SOUND]),
        (HERMES, "I look at it.\n" + tagged(READ, READ) + "\nnow", [SOUND, SOUND]),
        (HERMES, f"<tool_call>{READ}</tool_call>", [SOUND]),
        (HERMES, "Done: {x: 1}, no call.", []),
        (HERMES, 'The config is {"name": "tadpole", "version": 1} now.', []),
        (HERMES, f"<tool_call>\n{READ}", [REPAIRED]),
        (HERMES, f"<tool_call>\n{READ}\n<tool_call>\n{READ}", [REPAIRED, REPAIRED]),
        (HERMES, READ, [REPAIRED]),
        (HERMES, f"Sure:\n```json\n{READ}\n```\n", [REPAIRED]),
        (HERMES, f"{READ}\n{READ}", [REPAIRED, REPAIRED]),
        (HERMES, f"<tool_call>\n```json\n{READ}\n```\n</tool_call>", [REPAIRED]),
        (HERMES, f"<tool_call>{READ}}}</tool_call>", [REPAIRED]),
        (HERMES, tagged(READ.replace("arguments", "parameters")), [REPAIRED]),
        (
            HERMES,
            tagged(json.dumps({"name": "Read", "arguments": '{"file_path": "a.py"}'})),
            [REPAIRED],
        ),
        (HERMES, tagged(READ_XML), [REPAIRED]),
        (XML, tagged(READ_XML), [SOUND]),
        (XML, tagged(READ_XML, READ_XML), [SOUND, SOUND]),
        (XML, READ_XML, [REPAIRED]),
        (XML, tagged(READ), [REPAIRED]),
        (XML, tagged(READ_XML.replace("</parameter>\n", "")), [REPAIRED]),  # C2
        (XML, tagged(READ_XML.replace("\n</function>", "")), [REPAIRED]),
        (XML, f"<tool_call>\n{READ_XML}", [REPAIRED]),
        (XML, "<function=Read><parameter=file_path>a.py</parameter></function>", [REPAIRED]),
    ],
)
def test_calls_that_run(form, text, calls):
    assert list(parse(text, form)) == calls


@pytest.mark.parametrize(
    ("form", "text", "name", "words"),
    [
        (HERMES, tagged('{"name": "Read", "arguments": {"file_path": }}'), "Read", "column 45"),
        (HERMES, tagged("{'name': 'Read'}"), "", "column 2"),
        (HERMES, tagged('{"name": "Read",\n "arguments": {,}}'), "Read", "line 2 column 16"),
        (HERMES, tagged("Read a.py"), "", "column 1"),
        (HERMES, tagged(""), "", "empty"),
        (HERMES, tagged('{"name": "Read"}'), "Read", '"arguments" must be a JSON object'),
        (HERMES, tagged('{"name": "Read", "arguments": [1]}'), "Read", "must be a JSON object"),
        (HERMES, tagged('{"tool": "Read"}'), "", 'with "name" and "arguments"'),
        (HERMES, tagged("[" * 100_000), "", "nested too deeply"),
        (HERMES, tagged(READ + " and more"), "Read", "unexpected text"),
        (HERMES, '{"name": "Read", "arguments": {"file', "Read", "column 32"),
        (HERMES, '```json\n{"name": "Re', "", "column 10"),
        (HERMES, tagged(READ.replace('"', '\\"')), "", "column 2: the quotes are escaped once too"),
        (XML, tagged("<function=Read\n"), "", "at column 1 is not closed"),
        (XML, tagged("<function=Read>\n</fun"), "Read", "<parameter=KEY> or </function> at line 2"),
        (XML, tagged("<function=Read>\nfile_path: a\n</function>"), "Read", "found 'file_path"),
        (
            XML,
            tagged(READ_XML.replace("</function>", "") + READ_XML[15:]),
            "Read",
            "again at line 6 column 1",
        ),
    ],
)
def test_calls_that_cannot_be_read_say_why(form, text, name, words):
    (call,) = parse(text, form)
    assert call.name == name and call.error and words in call.error and not call.repaired


def test_c1_the_sound_call_runs_and_the_broken_one_gets_its_error():
    broken = (
        "<tool_call>\n<function=Edit>\n<parameter=file_path>\na.py\n</parameter>\n<parameter=old"
    )
    first, second = parse(tagged(READ_XML) + "\n" + broken, XML)
    assert first == SOUND
    assert second.name == "Edit" and "line 5 column 1, found '<parameter=old'" in second.error
    first, second = parse(tagged(READ) + '\n<tool_call>\n{"name": "Edit", "argu', HERMES)
    assert first == SOUND and second.name == "Edit" and "column" in second.error
    first, second = parse(tagged('{"name": "Edit", }', READ), HERMES)
    assert first.error and second == SOUND
    open_parameter = READ_XML.split("\n</parameter>")[0]
    first, second = parse(tagged(open_parameter, READ_XML), XML)
    assert "file_path at line 2 column 1 is not closed" in first.error and second == SOUND


BIG = "9" * 5000  # digits: json refuses them with an error of its own
HALF = "\\ud83d"  # as it is written in JSON
DEEP = "[" * 400 + "]" * 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f'{{"name": "Read", "arguments": {{"limit": {BIG}}}}}', "too many digits"),
        (f'{{"name": "Read", "arguments": {{"file_path": "{HALF}"}}}}', "half a surrogate pair"),
        (f'{{"name": "Read", "arguments": {{"{HALF}": 1}}}}', "half a surrogate pair"),
        (f'{{"name": "{HALF}", "arguments": {{}}}}', "half a surrogate pair"),
        (f'{{"name": "Read", "arguments": "{{\\"a\\": \\"\\{HALF}\\"}}"}}', "half a surrogate"),
        (f'{{"name": "Read", "arguments": {{"file_path": {DEEP}}}}}', "nested too deeply"),
    ],
)
def test_what_no_trace_could_keep_is_told_and_ends_nothing(body, words):
    """All of it can be read as JSON, and ended the episode or the run when it was written."""
    (call,) = parse(tagged(body), HERMES)
    assert call.error and words in call.error and not call.arguments
    (bare,) = parse(body, HERMES)
    assert bare.error and words in bare.error
    given = json.loads(body) if BIG not in body else {"name": "Read", "arguments": {}}
    function = {"name": given["name"], "arguments": body[body.index('"arguments": ') + 13 : -1]}
    sent = native.read({"id": "\ud83d", "function": function})
    assert sent.error and words in sent.error and sent.call_id == ""
    decoded = native.read({"id": "c", "function": given})
    for one in (call, bare, sent, decoded):
        assert ToolCall.model_validate_json(one.model_dump_json()) == one


def test_a_whole_emoji_in_two_escapes_is_text():
    (call,) = parse(tagged(READ.replace("a.py", "\\ud83d\\udc38.py")), HERMES)
    assert call.error is None and call.arguments == {"file_path": "\U0001f438.py"}


@pytest.mark.parametrize("blank", ["\n", " "])
def test_a_policy_that_only_breaks_lines_is_read_in_no_time(blank):
    """Patterns that begin with white space took a minute for a turn of nothing else."""
    text = f"<tool_call>\n<function=Write>\n<parameter=content>\n{blank * 40_000}x"
    begun = time.process_time()
    assert parse(text, XML)[0].error
    (call,) = parse(text + "\n</parameter>\n</function>\n</tool_call>", XML)
    assert call.arguments == {"content": blank * 40_000 + "x"}
    assert time.process_time() - begun < 3


def test_line_breaks_inside_json_strings_are_taken_as_meant():
    text = tagged('{"name": "Write", "arguments": {"file_path": "a", "content": "x\ny"}}')
    (call,) = parse(text, HERMES)
    assert call.arguments["content"] == "x\ny" and call.repaired and call.error is None


def test_values_may_quote_the_tags():
    content = "</tool_call> <tool_call> ```json {"
    call = ToolCall(name="Write", arguments={"file_path": "a", "content": content})
    assert parse(render(call, HERMES), HERMES) == (call,)
    content = "see </parameter> and </function> here\n\n"
    call = ToolCall(name="Write", arguments={"file_path": "a", "content": content})
    assert parse(render(call, XML), XML) == (call,)


WORDS = st.text(st.sampled_from("ab \n\"\\{}[]<>/=éß'`"), max_size=20)
ARGUMENTS = st.dictionaries(st.sampled_from(["file_path", "content", "x"]), WORDS, min_size=1)
NOISE = st.text(st.sampled_from("abc .,:\n*#é"), max_size=30)


def readable(form, arguments):
    """Whether the format can carry the values at all: XML has no escapes."""
    tags = ("<tool_call>", "<function=", "<parameter=", "</")
    return form is HERMES or not any(tag in value for value in arguments.values() for tag in tags)


@settings(deadline=None)
@given(
    form=st.sampled_from(CallFormat),
    several=st.lists(ARGUMENTS, min_size=1, max_size=3),
    noise=st.tuples(NOISE, NOISE),
)
def test_calls_come_back_whatever_stands_around_them(form, several, noise):
    wanted = [
        ToolCall(name="Write", arguments=arguments)
        for arguments in several
        if readable(form, arguments)
    ]
    text = noise[0] + "\n".join(render(call, form) for call in wanted) + "\n" + noise[1]
    assert list(parse(text, form)) == wanted


@settings(deadline=None, max_examples=60)
@given(form=st.sampled_from(CallFormat), arguments=ARGUMENTS, bare=st.booleans())
def test_every_cut_gives_the_same_call_or_says_what_is_missing(form, arguments, bare):
    if not readable(form, arguments):
        return
    call = ToolCall(name="Write", arguments=arguments)
    text = render(call, form)
    if bare:
        text = text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    begun = 2 if bare and form is HERMES else len("<function=" if bare else "<tool_call>")
    for cut in range(len(text)):
        found = parse(text[:cut], form)
        assert len(found) <= 1
        for one in found:
            if one.error is None:
                assert one.arguments.items() <= call.arguments.items() and one.repaired
                assert form is XML or one.arguments == call.arguments
            else:
                assert one.error
        if not (bare and form is HERMES):
            assert bool(found) == (cut >= begun)


@pytest.fixture(scope="session")
def talks(make_tokenizer):
    return {
        form: Dialogue(make_tokenizer("qwen3"), form, make_profile(ProfileName.COMPACT, form))
        for form in CallFormat
    }


@settings(deadline=None, max_examples=15)
@given(
    form=st.sampled_from(CallFormat),
    several=st.lists(ARGUMENTS, min_size=1, max_size=2),
    thought=st.sampled_from(["", "<think>\nhm é\n</think>\n\n"]),
    broken=st.sampled_from(
        ["", "\n<tool_call>\n<function=Edit>\n<parameter=old", "\n<tool_call>{"]
    ),
)
def test_c3_wherever_a_stream_is_cut_the_result_is_the_same(talks, form, several, thought, broken):
    """A policy's stream is token ids: tags may be split between tokens anywhere."""
    talk = talks[form]
    rendered = [render(ToolCall(name="Write", arguments=one), form) for one in several]
    text = thought + "\n".join(rendered) + broken
    whole = talk.read(talk.write(text))
    assert whole[0] == text and whole[1] == ("hm é" if thought else "")
    assert len(whole[2]) >= len(several)
    for cut in range(len(text) + 1):
        split = [*talk.write(text[:cut])[:-1], *talk.write(text[cut:])]
        assert talk.read(split) == whole
    assert talk.read([token for char in text for token in talk.write(char)[:-1]]) == whole


@settings(deadline=None, max_examples=300)
@given(
    form=st.sampled_from(CallFormat),
    pieces=st.lists(
        st.sampled_from(
            ["<tool_call>", "</tool_call>", "<function=Read>", "<function=", "</function>", "\n",
             "<parameter=a>", "<parameter=", "</parameter>", READ, READ[:20], READ[20:], "x", "}",
             "```json\n", "```", '{"name": ', "<think>", "</think>"]
        ),
        max_size=14,
    ),
)  # fmt: skip
def test_nothing_that_a_policy_writes_raises(form, pieces):
    text = "".join(pieces)
    rest = reasoning.split(text)[1]
    for call in (*parse(text, form), *parse(rest, form)):
        assert call.error is None or not call.repaired


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>\nhm\n</think>\n\nhello", False, ("hm", "\n\nhello")),
        ("hm\n</think>\nhello", True, ("hm", "\nhello")),
        ("hm\n</think>\nhello", False, ("hm", "\nhello")),
        ("<think>\nnever ends", False, ("never ends", "")),
        ("never ends", True, ("never ends", "")),
        ("no thought", False, ("", "no thought")),
        ("<tool_call>x</think></tool_call>", False, ("", "<tool_call>x</think></tool_call>")),
        ("<function=Write>x</think>", False, ("", "<function=Write>x</think>")),
    ],
)
def test_reasoning_is_kept_apart(text, opened, expected):
    assert reasoning.split(text, opened=opened) == expected


def test_the_format_is_the_one_that_the_template_teaches():
    assert format_of("... <function=example_function_name> ...") is XML
    assert format_of("... <tool_call> ...") is HERMES


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "Bash", "arguments": {"command": "echo \\ud800"}}',
        '{"name": "Bash", "arguments": "{\\"command\\": \\"\\\\udfff\\"}"}',
        '{"name": "B\\ud800", "arguments": {}}',
    ],
)
def test_half_a_surrogate_pair_is_told_and_stays_out_of_the_record(body):
    (call,) = parse(tagged(body), HERMES)
    assert "half a surrogate pair" in call.error and call.arguments == {}
    assert call.model_dump_json()
    for arguments in ('{"command": "\\ud800"}', {"command": "\ud800"}):
        made = native.read({"id": "\udc00", "function": {"name": "Bash", "arguments": arguments}})
        assert "half a surrogate pair" in made.error and made.model_dump_json()
    (sound,) = parse(tagged(READ.replace("a.py", "\\ud83d\\ude00")), HERMES)
    assert sound.arguments == {"file_path": "\U0001f600"}
