"""A server of a model as the doctor meets it: well behaved, but for what a test asks for."""

import json
import time
from dataclasses import dataclass

from tests.chat_server import Server, call, completion

MODEL = "qwen3-4b"
NOTES = {"file_path": "notes.txt"}
REFUSAL = {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}}
LONG = {"error": {"message": "the request exceeds the available context size"}}


@dataclass
class Behaviour:
    """How the model and its template behave; the defaults are faultless."""

    call: str = "native"  # or json, xml, torn, broken, unknown, none, refused
    described: bool = True  # whether the template tells of tools
    two: str = "both"  # or one, broken, unnamed
    result: str = "seen"  # or counted, lost, refused
    think: str = "field"  # or text, none, endless
    text: str = "391"
    window: int = 1 << 20
    overflow: str = "refuse"  # or cut
    cached: bool = False  # counts only what was not in its cache, as some do
    usage: bool = True
    wait: float = 0.0
    per_token: float = 0.0  # seconds

    def __post_init__(self):
        self._before = ""

    def __call__(self, handler):
        body = handler.server.seen[-1][2]
        status, answer = self.answer(body)
        handler.give(status, answer)

    def answer(self, body):
        messages, told = body["messages"], bool(body.get("tools"))
        last = messages[-1]
        if told and self.call == "refused":
            return 400, REFUSAL
        if self.think == "endless" and body["max_tokens"] > 1:
            return 200, completion("", "length", reasoning_content="Wait, but")
        if last["role"] == "tool" and self.result == "refused":
            return 500, {"error": {"message": "conversation roles must alternate"}}
        shown = [m["content"] for m in messages if m["role"] != "tool" or self.result != "lost"]
        text = " ".join(shown)
        tokens = len(text.split()) + (600 if told and self.described else 0)
        time.sleep(self.wait * ("17 * 23" in text) + self.per_token * tokens)
        if tokens > self.window:
            if self.overflow == "refuse":
                return 400, LONG
            tokens = self.window
        if self.cached:
            kept = len(self._before) if text.startswith(self._before) else 0
            self._before, tokens = text, max(1, len(text[kept:].split()))
        made = self.made(body, last, told)
        if self.usage:
            made["usage"] = {"prompt_tokens": tokens, "completion_tokens": 8}
        else:
            made.pop("usage")
        return 200, made

    def made(self, body, last, told):
        if last["role"] == "tool":
            return completion("quartz" if self.result == "seen" else "I see.")
        if "twice" in last["content"]:
            return self.twice()
        if told:
            return self.once()
        thought = {"reasoning_content": "Hm."} if self.think == "field" else {}
        text = f"<think>\nHm.\n</think>\n{self.text}" if self.think == "text" else self.text
        return completion(text, **thought)

    def once(self):
        wanted = json.dumps(NOTES)
        written = json.dumps({"name": "Read", "arguments": NOTES})
        xml = "<function=Read>\n<parameter=file_path>\nnotes.txt\n</parameter>\n</function>"
        texts = {
            "json": f"<tool_call>\n{written}\n</tool_call>",
            "xml": f"<tool_call>\n{xml}\n</tool_call>",
            "torn": "<tool_call>\n{name Read\n</tool_call>",
            "none": "I cannot open files.",
        }
        if self.call in texts:
            return completion(texts[self.call])
        calls = {
            "native": call("Read", wanted),
            "broken": call("Read", wanted[:-4]),
            "unknown": call("ReadRead", wanted),
        }
        return completion("", "tool_calls", tool_calls=[calls[self.call]])

    def twice(self):
        one, other = (call("Read", json.dumps({"file_path": f"{x}.txt"}), x) for x in "ab")
        if self.two == "broken":  # as where two streams are run together
            one["function"]["arguments"] += other["function"]["arguments"]
        if self.two == "unnamed":
            one.pop("id"), other.pop("id")
        calls = [one] if self.two in ("one", "broken") else [one, other]
        return completion("", "tool_calls", tool_calls=calls)


def begin(kind: str = "", **behaviour) -> Server:
    """A server of some kind, listening."""
    made = Server()
    made.script = [Behaviour(**behaviour)]
    owner = {"llama.cpp": "llamacpp", "vLLM": "vllm", "SGLang": "sglang"}.get(kind, "me")
    entry = {"id": MODEL, "owned_by": owner}
    made.pages["/v1/models"] = {"data": [entry]}
    if kind == "Ollama":
        entry["owned_by"] = "library"
        made.pages["/api/version"] = {"version": "0.12.1"}
        made.pages["/api/tags"] = {"models": [{"name": MODEL, "size": 3 << 30}]}
        made.pages["/api/ps"] = {"models": [{"name": MODEL, "context_length": 4096}]}
    elif kind == "LM Studio":
        entry["owned_by"] = "organization_owner"
        made.pages["/api/v0/models"] = {"data": [{"id": MODEL, "loaded_context_length": 4096}]}
    elif kind == "llama.cpp":
        entry["meta"] = {"n_ctx": 4096, "n_params": 4_000_000_000, "size": 2_500_000_000}
        made.pages["/props"] = {"default_generation_settings": {}}
    elif kind == "vLLM":
        entry["max_model_len"] = 8192
    elif kind == "other":
        entry["owned_by"] = "somebody"
    return made
