"""The doctor and servers that misbehave, each in one way; and proxies, and memory."""

import socket
import threading

import pytest
from misbehaving import MODEL, begin

from tadpole.errors import ConfigError
from tadpole.servers.examine import Wish, examine
from tadpole.servers.footprint import footprint
from tadpole.servers.kind import ServerKind, identify, named_parameters
from tests.chat_server import Server


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def served():
    made = []

    def start(kind="other", **behaviour):
        made.append(begin(kind, **behaviour))
        return made[-1]

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


async def looked_at(server: Server, **wish):
    wished = {"base": server.url, "model": MODEL, "context": 3000} | wish
    return {finding.name: finding async for finding in examine(Wish(**wished))}


ALL = ["server", "model", "answer", "speed", "reasoning", "tool call", "two calls", "tool result",
       "context", "needs"]  # fmt: skip


async def test_a_faultless_server_has_nothing_to_change(served):
    found = await looked_at(served("vLLM"))
    assert list(found) == ALL
    assert all(finding.ok and not finding.fix for finding in found.values()), found
    assert found["tool call"].more == {"form": "native"}
    assert found["context"].detail.startswith("3,000 tokens are read; the server says 8,192")
    assert "tokens a second (8 in" in found["speed"].detail


@pytest.mark.parametrize("kind", [kind for kind in ServerKind if kind is not ServerKind.OTHER])
def test_every_kind_is_known_by_what_it_answers(served, kind):
    found = identify(served(kind.value).url, "")
    assert (found.kind, found.models) == (kind, (MODEL,))
    told = {ServerKind.LLAMA_CPP: 4096, ServerKind.LM_STUDIO: 4096, ServerKind.OLLAMA: 4096,
            ServerKind.VLLM: 8192}  # fmt: skip
    assert found.window(MODEL) == told.get(kind)


@pytest.mark.parametrize(
    ("kind", "behaviour", "name", "ok", "told", "fix"),
    [
        ("vLLM", {"call": "refused"}, "tool call", False, "requires --enable-auto-tool-choice",
         "--enable-auto-tool-choice --tool-call-parser hermes"),
        ("SGLang", {"call": "json"}, "tool call", True, "as JSON within the text",
         "--tool-call-parser qwen25"),
        ("llama.cpp", {"call": "xml"}, "tool call", True, "as XML within the text", "--jinja"),
        ("vLLM", {"call": "torn"}, "tool call", False, "cannot be read", "--tool-call-parser"),
        ("LM Studio", {"call": "broken"}, "tool call", False, "cannot be read", "tool badge"),
        ("Ollama", {"call": "unknown"}, "tool call", False, "no tool 'ReadRead'", "ollama pull"),
        ("other", {"call": "none"}, "tool call", False, "told of its tools and called none",
         "trained to call tools"),
        ("llama.cpp", {"call": "none", "described": False}, "tool call", False,
         "the chat template leaves them out", "--jinja --chat-template-file FILE.jinja"),
        ("Ollama", {"call": "none", "described": False}, "tool call", False, "leaves them out",
         "{{ .Tools }}"),
        ("llama-cpp-python", {"call": "none", "described": False}, "tool call", False,
         "leaves them out", "--chat_format chatml-function-calling"),
        ("other", {"two": "one"}, "two calls", True, "1 of two calls", "--leaf.max_turns"),
        ("vLLM", {"two": "broken"}, "two calls", False, "unexpected text after the arguments",
         "--tool-call-parser hermes"),
        ("other", {"two": "unnamed"}, "two calls", True, "without an id each", ""),
        ("other", {"result": "counted"}, "tool result", True, "reaches the model", ""),
        ("SGLang", {"result": "lost"}, "tool result", False, "does not reach the model",
         "sglang.launch_server with --chat-template FILE.jinja"),
        ("vLLM", {"result": "refused"}, "tool result", False, "roles must alternate",
         "vllm serve with --chat-template FILE.jinja"),
        ("other", {"result": "lost", "usage": False}, "tool result", True, "cannot be told",
         "usage.prompt_tokens"),
        ("llama.cpp", {"think": "text"}, "reasoning", True, "within the text",
         "--reasoning-format deepseek"),
        ("vLLM", {"think": "text"}, "reasoning", True, "within the text",
         "--reasoning-parser qwen3"),
        ("other", {"think": "none"}, "reasoning", True, "none", ""),
        ("llama.cpp", {"think": "endless"}, "tool call", True, "not at its end after 2,048 tokens",
         "--reasoning-budget 0"),
        ("other", {"think": "endless"}, "answer", True, "cannot be told", "Instruct variant"),
        ("other", {"think": "none", "text": ""}, "answer", False, "is empty", "chat template"),
        ("other", {"wait": 1.7}, "speed", True, "tokens a second", "a smaller model"),
        ("other", {"usage": False}, "context", True, "cannot be measured", "usage.prompt_tokens"),
        ("llama.cpp", {"window": 1500}, "context", False, "tokens are read, not 3,000",
         "-c 3000 -np 1"),
        ("Ollama", {"window": 2000, "overflow": "cut"}, "context", False,
         "longer prompts than 2,000 tokens are silently cut",
         "OLLAMA_CONTEXT_LENGTH=3000 ollama serve; or tadpole solve --leaf.max_context 2000"),
        ("LM Studio", {"window": 2000, "overflow": "cut"}, "context", False, "silently cut",
         f"lms load {MODEL} --context-length 3000, and Context Overflow: Stop at Limit"),
        ("other", {"cached": True, "result": "seen"}, "context", True, "3,000 tokens are read", ""),
    ],
)  # fmt: skip
async def test_each_fault_is_found_and_ends_with_what_to_change(
    served, kind, behaviour, name, ok, told, fix
):
    found = (await looked_at(served(kind, **behaviour)))[name]
    assert found.ok is ok and told in found.detail, found
    assert fix in found.fix and bool(fix) == bool(found.fix), found
    assert "\n" not in found.detail + found.fix


async def test_a_window_is_found_to_a_sixteenth_by_few_questions(served):
    server = served("other", window=20_000)
    found = (await looked_at(server, context=65_536))["context"]
    assert 20_000 * 15 / 16 <= found.more["holds"] <= 20_000
    asked = [body for _, _, body in server.seen if body["max_tokens"] == 1 and "tools" not in body]
    assert len(asked) <= 14


async def test_what_would_take_too_long_is_not_asked(served):
    server = served("other", per_token=0.0001)
    found = (await looked_at(server, context=65_536, seconds=0.5))["context"]
    assert found.ok and found.more["ending"] == "time" and 1000 < found.more["holds"] < 20_000
    assert "would take longer than 0.5 s" in found.detail and "doctor --seconds " in found.fix


@pytest.mark.parametrize(
    ("page", "told", "fix"),
    [
        ((401, {"error": "who are you"}), "401", "export OPENAI_API_KEY="),
        ((404, {"error": "no such page"}), "404", "start the server"),
        ({"data": []}, "the server has no model", "load a model"),
        ({"data": [{"id": "qwen3-8b"}]}, f"the server has no {MODEL}", "openai:qwen3-8b"),
    ],
)
async def test_what_is_there_instead(served, page, told, fix):
    server = served()
    server.pages["/v1/models"] = page
    *_, last = (await looked_at(server)).values()
    assert not last.ok and told in last.detail and fix in last.fix


async def test_no_server_no_address_and_an_address_without_its_end(served):
    with socket.create_server(("127.0.0.1", 0)) as port:
        base = f"http://127.0.0.1:{port.getsockname()[1]}/v1"
    (found,) = [one async for one in examine(Wish(base=base))]
    assert not found.ok and found.fix.startswith("start the server, or set OPENAI_BASE_URL")
    server = served()
    (found,) = [one async for one in examine(Wish(base=server.url.removesuffix("/v1")))]
    assert not found.ok and found.fix == f"export OPENAI_BASE_URL={server.url}"
    with pytest.raises(ConfigError, match="set OPENAI_BASE_URL"):
        [one async for one in examine(Wish(base=""))]


async def test_a_proxy_that_captures_this_machine(served, monkeypatch):
    server, proxy = served(), served()
    proxy.pages["/v1/models"] = (502, {"error": "bad gateway"})  # it cannot reach us
    monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
    found = await looked_at(server)
    assert list(found) == ["proxy"] and not found["proxy"].ok
    assert "http_proxy sends requests for 127.0.0.1 to a proxy" in found["proxy"].detail
    assert found["proxy"].fix == "export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert "proxy" not in await looked_at(server)


async def test_a_server_that_goes_away_in_between_is_not_blamed_on_tools(served):
    server = served()

    def fall(handler):
        threading.Thread(target=server.shutdown).start()
        server.server_close()
        handler.connection.close()

    server.script = [server.script[0], fall]
    found = await looked_at(server)
    assert list(found) == ["server", "model", "answer", "speed", "reasoning", "needs"]
    assert not found["answer"].ok and "cannot be reached" in found["answer"].detail


def test_memory_by_precision():
    need = footprint(8_000_000_000, 65_536)
    assert need.weights["bf16"] == 16_000_000_000
    assert need.cache["f16"] == 2 * 36 * 1024 * 2 * 65_536  # 9 GiB, as for Qwen3-8B
    assert need.told() == (
        "weights bf16 14.9, q8_0 7.9, q4_K_M 4.5 GiB, and cache f16 9.0, q8_0 4.8 GiB"
    )
    names = {"Qwen3-4B-Instruct": 4e9, "smollm2:135m": 135e6, "qwen2.5-coder_1.5b": 1.5e9,
             "Qwen3-30B-A3B": 30e9, "gpt-4": None, "phi": None}  # fmt: skip
    assert {name: named_parameters(name) for name in names} == names


async def test_too_little_memory_names_the_flag(served):
    found = await looked_at(served("llama.cpp"), memory=2 << 30, context=65_536, seconds=1)
    assert (
        "--cache-type-k q8_0" in found["needs"].fix and "here are 2.0 GiB" in found["needs"].detail
    )
