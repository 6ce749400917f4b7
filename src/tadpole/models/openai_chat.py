"""A policy behind a server with the OpenAI chat interface: SGLang, vLLM, llama.cpp, Ollama, ...

What passes by itself (no connection, an overloaded or restarting server, a garbled answer) is
tried again a few times; what does not is one clear line. Nothing is sent anywhere unless the
server's address was given: there is no default one.
"""

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from tadpole.errors import ConfigError, ContextFull, ModelError
from tadpole.leaf.calls import native
from tadpole.protocols import Message, Reply, Sampling
from tadpole.visible import whole

_MOST_BYTES = 64 << 20  # of one answer
_LONGEST_WAIT = 60.0  # seconds, whatever Retry-After asks for
_CUT = ("length", "max_tokens", "max_new_tokens")
_OVERFLOW = (
    "context_length_exceeded",
    "maximum context length",
    "reduce the length",
    "exceed_context_size",
    "exceeds the available context",
    "longer than the model's context",
)
_HINTS = {
    401: "; set OPENAI_API_KEY to a key that it accepts",
    403: "; set OPENAI_API_KEY to a key that it accepts",
    404: "; check OPENAI_BASE_URL (it usually ends in /v1) and the name of the model",
}


class _Passing(Exception):
    """A failure that may be over at the next try, after ``wait`` seconds if the server says."""

    def __init__(self, what: str, wait: float = 0.0):
        super().__init__(what)
        self.wait = wait


class OpenAIChat:
    """Implements :class:`tadpole.protocols.ChatModel`.

    ``model`` is the server's name for it. ``base_url`` and ``api_key`` default to the
    environment's OPENAI_BASE_URL and OPENAI_API_KEY (local servers take any key).
    ``tries`` failed requests in a row end in ModelError; between them it waits ``pause``
    seconds, then twice that, and so on. ``silence``: seconds without a byte of an answer.
    ``extra`` goes into every request as it is. Raises ConfigError where there is no address.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str = "",
        tries: int = 4,
        pause: float = 0.5,
        silence: float = 3600.0,
        extra: Mapping[str, Any] | None = None,
    ):
        base = base_url or os.environ.get("OPENAI_BASE_URL", "")
        if not base.startswith(("http://", "https://")):
            raise ConfigError(
                f"no server to ask for {model}: set OPENAI_BASE_URL, for example to "
                "http://127.0.0.1:8000/v1"
            )
        self._model, self._tries, self._pause = model, tries, pause
        self._url = base.rstrip("/") + "/chat/completions"
        self._shown = re.sub(r"//[^/]*@", "//", self._url)  # in messages: without a password
        self._key = api_key or os.environ.get("OPENAI_API_KEY", "") or "none"
        self._timeout = httpx2.Timeout(silence, connect=min(10.0, silence))
        self._extra = dict(extra or {})
        # Made once: it takes longer than many an answer. Plain http has no use for it.
        self._verify = httpx2.create_ssl_context() if base.startswith("https://") else False

    @property
    def fingerprint(self) -> str:
        """The server's name for the model: a server does not tell which weights it has."""
        return f"openai:{self._model}"

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> Reply:
        """See the protocol."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(messages),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed % 2**31,
        }
        if sampling.top_k:  # not in OpenAI's own interface, but in those of local servers
            body["top_k"] = sampling.top_k
        if tools:
            # llama.cpp allows one call a turn unless it is asked for more.
            body |= {"tools": list(tools), "tool_choice": "auto", "parallel_tool_calls": True}
        content = json.dumps(body | self._extra).encode()
        async with httpx2.AsyncClient(timeout=self._timeout, verify=self._verify) as client:
            for left in reversed(range(self._tries)):
                try:
                    return await self._ask(client, content)
                except _Passing as failure:
                    if not left:
                        raise ModelError(f"{self._shown} {failure}") from None
                    doubled = self._pause * 2 ** (self._tries - 1 - left)
                    await asyncio.sleep(min(max(failure.wait, doubled), _LONGEST_WAIT))
        raise ModelError(f"{self._shown} was not asked: tries is {self._tries}")

    async def _ask(self, client: httpx2.AsyncClient, content: bytes) -> Reply:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        answer = bytearray()
        try:
            async with client.stream(
                "POST", self._url, content=content, headers=headers
            ) as response:
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > _MOST_BYTES:
                        raise ModelError(f"{self._shown} answered with more than 64 MiB")
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise ModelError(f"OPENAI_BASE_URL is no usable address: {error}") from None
        except httpx2.ConnectError as error:
            hint = "start the server, or set OPENAI_BASE_URL to where it is"
            raise _Passing(f"cannot be reached ({_words(error)}); {hint}") from None
        except httpx2.TimeoutException as error:
            raise _Passing(f"did not answer in time ({type(error).__name__})") from None
        except (httpx2.RequestError, httpx2.StreamError) as error:
            raise _Passing(f"broke off its answer ({_words(error)})") from None
        if response.status_code == httpx2.codes.OK:
            return _reply(bytes(answer))
        raise self._refusal(response, bytes(answer))

    def _refusal(self, response: httpx2.Response, answer: bytes) -> Exception:
        status, said = response.status_code, _message(answer)
        if any(marker in said.lower() for marker in _OVERFLOW):
            return ContextFull(f"{self._shown}: {said}")
        if status in (408, 425, 429) or status >= 500:
            wait = response.headers.get("retry-after", "")
            seconds = float(wait) if wait.replace(".", "", 1).isdigit() else 0.0
            return _Passing(f"failed with status {status}: {said}", seconds)
        return ModelError(
            f"{self._shown} refused with status {status}: {said}{_HINTS.get(status, '')}"
        )


def _reply(answer: bytes) -> Reply:
    """The answer as a Reply. Raises _Passing for what is none."""
    try:
        body = json.loads(answer)
        if body.get("error"):
            raise _Passing(f"failed: {_message(answer)}")
        choice = body["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        text = _text(message.get("content"))
        thought = message.get("reasoning_content") or message.get("reasoning") or ""
        items = message.get("tool_calls") or []
        if not isinstance(items, list) or not isinstance(thought, str):
            raise TypeError
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        said = _message(answer)
        raise _Passing(f"answered with what is no chat completion: {said}") from None
    if reason in ("content_filter", "error", "abort"):
        raise _Passing(f"ended the turn with {reason}")
    usage = body.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Reply(
        text=text,
        reasoning=thought.strip(),
        calls=tuple(native.read(item) for item in items),
        ended=reason not in _CUT,
        prompt_tokens=_count(counts.get("prompt_tokens")),
        generated_tokens=_count(counts.get("completion_tokens")),
    )


def _text(content: Any) -> str:
    """A message's content: a text, nothing, or a list of parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError
    return content or ""


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and value > 0 else None


def _message(answer: bytes) -> str:
    """What an error answer says, on one line and not too long."""
    text = answer[:4000].decode("utf-8", "replace")
    try:
        body = json.loads(answer)
        error = body.get("error", body) if isinstance(body, dict) else body
        found = error.get("message", error) if isinstance(error, dict) else error
        code = error.get("code") if isinstance(error, dict) else None
        text = f"{found} ({code})" if isinstance(code, str) else str(found)
    except (ValueError, RecursionError):
        pass
    return whole(" ".join(text.split())[:300]) or "nothing"


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
