"""A real HTTP server on this machine that speaks the OpenAI chat interface, well or badly."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(content="hi", reason="stop", usage=True, **message):
    body = {
        "choices": [
            {
                "finish_reason": reason,
                "message": {"role": "assistant", "content": content} | message,
            }
        ]
    }
    if usage:
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return body


def call(name="Read", arguments='{"file_path": "a.py"}', call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Server(ThreadingHTTPServer):
    """Gives the answers of ``script`` in order: (status, body, headers) or a function."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.seen, self.times = [], [], []
        self.pages = {}  # path -> what a GET of it gives: a body, or (status, body)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_):
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.server.pages.get(self.path, (404, {"error": "no such page"}))
        status, content = found if isinstance(found, tuple) else (200, found)
        self.give(status, content)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        at = len(self.server.seen)
        self.server.seen.append((self.path, self.headers, json.loads(body)))
        self.server.times.append(time.monotonic())
        answer = self.server.script[min(at, len(self.server.script) - 1)]
        if callable(answer):
            return answer(self)
        status, content, headers = answer if isinstance(answer, tuple) else (200, answer, {})
        self.give(status, content, headers)

    def give(self, status, content, headers=None):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(data))} | (headers or {})).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass
