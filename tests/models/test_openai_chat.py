"""The client against a real HTTP server on this machine, well-behaved and not."""

import asyncio
import socket
import time

import pytest

from tadpole.errors import ConfigError, ContextFull, ModelError
from tadpole.models.openai_chat import OpenAIChat
from tadpole.protocols import Sampling
from tadpole.trace import ToolCall
from tests.chat_server import call, completion


async def ask(server, *, sampling=None, tools=(), key="secret", **options):
    model = OpenAIChat("m", base_url=server.url, api_key=key, pause=0.01, **options)
    return await model.reply(
        [{"role": "user", "content": "hello é"}],
        tools=tools,
        sampling=sampling or Sampling(),
        seed=5,
    )


async def test_what_is_asked_and_what_comes_back(server):
    server.script = [completion("hi", "tool_calls", tool_calls=[call()], reasoning_content=" hm ")]
    tool = {"type": "function", "function": {"name": "Read"}}
    reply = await ask(
        server, sampling=Sampling(0.6, 0.95, 20, 99), tools=[tool], extra={"min_p": 0}
    )
    assert (reply.text, reply.reasoning, reply.ended) == ("hi", "hm", True)
    assert reply.calls == (ToolCall(name="Read", arguments={"file_path": "a.py"}, call_id="c1"),)
    assert (reply.prompt_tokens, reply.generated_tokens) == (11, 7)
    ((path, headers, body),) = server.seen
    assert path == "/v1/chat/completions" and headers["Authorization"] == "Bearer secret"
    assert body == {
        "model": "m", "messages": [{"role": "user", "content": "hello é"}], "temperature": 0.6,
        "top_p": 0.95, "top_k": 20, "max_tokens": 99, "seed": 5, "tools": [tool],
        "tool_choice": "auto", "parallel_tool_calls": True, "min_p": 0,
    }  # fmt: skip


async def test_the_environment_says_where(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    server.script = [completion()]
    model = OpenAIChat("m")
    await model.reply([], tools=(), sampling=Sampling(), seed=2**40)
    assert server.seen[0][1]["Authorization"] == "Bearer from-env"
    assert server.seen[0][0] == "/v1/chat/completions" and 0 <= server.seen[0][2]["seed"] < 2**31
    assert "top_k" not in server.seen[0][2] and "tools" not in server.seen[0][2]
    assert model.fingerprint == "openai:m"
    for missing in ("", "localhost:8000"):
        monkeypatch.setenv("OPENAI_BASE_URL", missing)
        with pytest.raises(ConfigError, match="set OPENAI_BASE_URL, for example"):
            OpenAIChat("m")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (completion(None, tool_calls=[call()]), {"text": ""}),
        (
            completion([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            {"text": "ab"},
        ),
        (completion("x", "length"), {"ended": False}),
        (completion("x", None), {"ended": True}),
        (completion("x", reasoning="r"), {"reasoning": "r"}),
        (completion("x", usage=False), {"prompt_tokens": None, "generated_tokens": None}),
        (completion("x") | {"usage": {"prompt_tokens": "many"}}, {"prompt_tokens": None}),
        (completion("x", tool_calls=None), {"calls": ()}),
    ],
)
async def test_servers_differ(server, body, expected):
    server.script = [body]
    reply = await ask(server)
    assert {key: getattr(reply, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("item", "name", "arguments", "error", "repaired"),
    [
        (call(), "Read", {"file_path": "a.py"}, None, False),
        (call(arguments={"file_path": "a"}), "Read", {"file_path": "a"}, None, False),
        (call(arguments=""), "Read", {}, None, False),
        (call(arguments=None), "Read", {}, None, False),
        (call(arguments='"{\\"file_path\\": \\"a\\"}"'), "Read", {"file_path": "a"}, None, True),
        (call(arguments='{"x": "a\nb"}'), "Read", {"x": "a\nb"}, None, True),
        (call(arguments='{"file_path": '), "Read", {}, "column 15", False),
        (call(arguments='{\\"file_path\\": 1}'), "Read", {}, "escaped once too often", False),
        (
            call(arguments='{"a": 1}, {"b": 2}'),
            "Read",
            {},
            "after the arguments at column 9",
            False,
        ),
        (call(arguments="[1]"), "Read", {}, "must be a JSON object", False),
        (call(arguments=5), "Read", {}, "must be a JSON object", False),
        ({"id": "c1", "function": {"arguments": "{}"}}, "", {}, "names no function", False),
        ("Read", "", {}, "names no function", False),
    ],
)
async def test_native_calls_sound_or_not(server, item, name, arguments, error, repaired):
    server.script = [completion("", "tool_calls", tool_calls=[call(), item])]
    first, second = (await ask(server)).calls
    assert first.error is None and first.arguments == {"file_path": "a.py"}
    assert (second.name, second.arguments, second.repaired) == (name, arguments, repaired)
    assert second.error is None if error is None else error in second.error


def hang(handler):
    time.sleep(3)


def break_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def slam(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)


PASSING = [
    (500, b"oops", {}), (503, {"error": {"message": "loading model"}}, {}), (429, b"", {}),
    (200, b"<html>proxy</html>", {}), (200, {"choices": []}, {}), (200, b"", {}), (200, [1], {}),
    (200, {"error": "busy"}, {}), (200, completion(5), {}), (200, {"choices": [{}]}, {}),
    (200, completion("", tool_calls="Read"), {}), break_off, slam,
]  # fmt: skip


@pytest.mark.parametrize("failure", PASSING, ids=range(len(PASSING)))
async def test_what_may_pass_is_tried_again(server, failure):
    server.script = [failure, failure, completion("at last")]
    assert (await ask(server)).text == "at last" and len(server.seen) == 3


@pytest.mark.parametrize("failure", PASSING, ids=range(len(PASSING)))
async def test_what_does_not_pass_is_one_clear_line(server, failure):
    server.script = [failure]
    with pytest.raises(ModelError) as error:
        await ask(server, tries=2)
    assert len(server.seen) == 2 and "\n" not in str(error.value)
    assert str(error.value).startswith(server.url) and "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, {"error": {"message": "bad tool schema"}}, "status 400: bad tool schema"),
        (401, {"error": {"message": "no"}}, "set OPENAI_API_KEY"),
        (404, {"error": {"message": "model m"}}, "OPENAI_BASE_URL (it usually ends in /v1)"),
        (400, b"", "status 400: nothing"),
        (302, b"moved", "status 302"),
    ],
)
async def test_a_refusal_is_not_repeated(server, status, body, words):
    server.script = [(status, body, {})]
    with pytest.raises(ModelError) as error:
        await ask(server)
    assert words in str(error.value) and len(server.seen) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
        {"object": "error", "message": "This model's maximum context length is 4096 tokens."},
        {"error": {"message": "the request exceeds the available context size"}},
    ],
)
async def test_a_prompt_that_is_too_long_is_a_limit(server, said):
    server.script = [(400, said, {})]
    with pytest.raises(ContextFull):
        await ask(server)
    assert len(server.seen) == 1


async def test_a_password_in_the_address_is_not_told(server):
    server.script = [(400, b"no", {})]
    model = OpenAIChat("m", base_url=server.url.replace("//", "//me:hunter2@"))
    with pytest.raises(ModelError) as error:
        await model.reply([], tools=(), sampling=Sampling(), seed=0)
    assert "hunter2" not in str(error.value) and server.url in str(error.value)


async def test_retry_after_is_waited_for(server):
    server.script = [(429, b"slow down", {"Retry-After": "0.4"}), completion()]
    await ask(server)
    assert server.times[1] - server.times[0] >= 0.4


async def test_a_server_that_says_nothing_is_given_up(server):
    server.script = [hang]
    with pytest.raises(ModelError, match="did not answer in time"):
        await ask(server, silence=0.2, tries=2)


async def test_a_server_that_is_not_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    model = OpenAIChat("m", base_url=url, tries=2, pause=0.01)
    with pytest.raises(ModelError, match=r"cannot be reached .*; start the server"):
        await model.reply([], tools=(), sampling=Sampling(), seed=0)


async def test_a_cancelled_question_lets_go_at_once(server):
    server.script = [hang]
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ask(server)
    assert time.monotonic() - begun < 2
