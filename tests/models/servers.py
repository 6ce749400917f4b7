"""Local HTTP servers that speak SGLang's and vLLM's wire format with a tiny model behind them.

They load real weights from the directories that they are given, and misbehave when told to.
"""

import copy
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file


class Server:
    """``twist[path]`` turns an answer into another one: a dict, or (status, text)."""

    def __init__(self, model, *, serves=None):
        self.model, self.serves = model, serves
        self.twist, self.asked, self.loaded = {}, [], []
        self.generating = self.loading = 0
        self.overlapped = False
        self.pause = threading.Event()  # cleared: turns wait
        self.pause.set()
        self._lock = threading.Lock()

    def post(self, path, body):
        with self._lock:
            self.asked.append((path, body))
        if path in self.PATHS:
            answer = getattr(self, self.PATHS[path])(body)
        else:
            answer = (404, '{"detail": "Not Found"}')
        twist = self.twist.get(path)
        return twist(answer) if twist else answer

    def draw(self, prompt, limit, temperature, ends):
        """(ids, log-probabilities, reason) of one turn."""
        with self._lock:
            self.generating += 1
            self.overlapped |= bool(self.loading)
        try:
            self.pause.wait(20)
            ids, logprobs = list(prompt), []
            with torch.no_grad():
                while len(logprobs) < limit:
                    logits = self.model(torch.tensor([ids])).logits[0, -1] / temperature
                    logs = logits.log_softmax(-1)
                    token = int(torch.multinomial(logs.exp(), 1))
                    ids.append(token)
                    logprobs.append(float(logs[token]))
                    if token in ends:
                        return ids[len(prompt) :], logprobs, "stop"
            return ids[len(prompt) :], logprobs, "length"
        finally:
            with self._lock:
                self.generating -= 1

    def load(self, directory, name):
        with self._lock:
            self.loading += 1
            self.overlapped |= bool(self.generating)
        fresh = copy.deepcopy(self.model)
        weights = load_file(Path(directory) / "model.safetensors")
        gone = fresh.load_state_dict(weights, strict=False)
        assert not gone.unexpected_keys and gone.missing_keys in ([], ["lm_head.weight"])  # tied
        self.model = fresh
        self.loaded.append(name)
        with self._lock:
            self.loading -= 1


class SGLangServer(Server):
    PATHS: ClassVar = {
        "/generate": "generate",
        "/update_weights_from_disk": "update",
        "/load_lora_adapter": "adopt",
        "/unload_lora_adapter": "drop",
    }
    weight_version = "default"
    adapters = ()

    def generate(self, body):
        asked = body["sampling_params"]
        assert asked["skip_special_tokens"] is False and asked["no_stop_trim"] is True
        assert body["return_logprob"] is True and (asked["top_k"] == -1 or asked["top_k"] > 0)
        if "lora_path" in body and body["lora_path"] not in self.adapters:
            said = f"The following requested LoRA adapters are not loaded: {body['lora_path']}"
            return 400, json.dumps({"error": {"message": said}})
        ids, logprobs, reason = self.draw(
            body["input_ids"], asked["max_new_tokens"], asked["temperature"],
            asked["stop_token_ids"],
        )  # fmt: skip
        finish = {"type": reason}
        finish |= {"matched": ids[-1]} if reason == "stop" else {"length": len(ids)}
        return {
            "text": "",
            "output_ids": ids,
            "meta_info": {
                "id": "1",
                "finish_reason": finish,
                "prompt_tokens": len(body["input_ids"]),
                "completion_tokens": len(ids),
                "weight_version": self.weight_version,
                "output_token_logprobs": [
                    [logprob, token, None] for logprob, token in zip(logprobs, ids, strict=True)
                ],
            },
        }

    def update(self, body):
        assert body["abort_all_requests"] is False and body["flush_cache"] is True
        self.load(body["model_path"], body["weight_version"])
        self.weight_version = body["weight_version"]
        return {"success": True, "message": "Succeeded to update model weights."}

    def adopt(self, body):
        if body["lora_name"] in self.adapters:
            return 400, json.dumps({"success": False, "error_message": "already loaded"})
        self.load(body["lora_path"], body["lora_name"])
        self.adapters = (*self.adapters, body["lora_name"])
        return {"success": True, "loaded_adapters": {}}

    def drop(self, body):
        self.adapters = tuple(name for name in self.adapters if name != body["lora_name"])
        return {"success": True}


class VLLMServer(Server):
    PATHS: ClassVar = {
        "/v1/completions": "generate",
        "/collective_rpc": "reload",
        "/reset_prefix_cache": "reset",
        "/v1/load_lora_adapter": "adopt",
        "/v1/unload_lora_adapter": "drop",
    }
    adapters = ()

    def generate(self, body):
        if body["model"] not in {"tiny", *self.adapters}:
            return 404, json.dumps({"error": {"message": "The model does not exist."}})
        assert body["add_special_tokens"] is False and body["skip_special_tokens"] is False
        assert body["return_token_ids"] is True and isinstance(body["seed"], int)
        ids, logprobs, reason = self.draw(
            body["prompt"], body["max_tokens"], body["temperature"], body["stop_token_ids"]
        )
        return {
            "id": "cmpl-1",
            "choices": [
                {
                    "index": 0,
                    "text": "",
                    "finish_reason": reason,
                    "stop_reason": ids[-1] if reason == "stop" else None,
                    "logprobs": {
                        "token_logprobs": logprobs,
                        "tokens": [f"token_id:{token}" for token in ids],
                    },
                    "token_ids": ids,
                    "prompt_token_ids": list(body["prompt"]),
                }
            ],
        }

    def reload(self, body):
        assert body == {"method": "reload_weights"}
        path = Path(self.serves)
        self.load(path, path.resolve().name)
        return {"results": [None]}

    def reset(self, body):
        return 200, ""

    def adopt(self, body):
        if body["lora_name"] in self.adapters:
            return 400, json.dumps({"error": {"message": "has already been loaded"}})
        self.load(body["lora_path"], body["lora_name"])
        self.adapters = (*self.adapters, body["lora_name"])
        return 200, f"Success: LoRA adapter '{body['lora_name']}' added successfully."

    def drop(self, body):
        self.adapters = tuple(name for name in self.adapters if name != body["lora_name"])
        return 200, "Success: LoRA adapter removed successfully."


@contextmanager
def served(server):
    """Serve on a free port; yields the URL. Ends with its open requests answered or not."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = server.post(self.path, body)
            if answer is None:  # hangs up without a word
                self.close_connection = True
                self.connection.close()
                return
            status, text = answer if isinstance(answer, tuple) else (200, json.dumps(answer))
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_):
            pass  # the client went away, or an assertion of the server: it answers nothing

    listening = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        server.pause.set()
        listening.shutdown()
        listening.server_close()
        thread.join()
