"""Which program serves a model, which models it has, and what it tells of them.

All of it is read from what the server answers at addresses of its own; nothing is guessed from
the port. What a server tells is a hint: the window is found by probing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx2


class ServerKind(StrEnum):
    """Servers whose settings we know by name."""

    LLAMA_CPP = "llama.cpp"
    LLAMA_CPP_PYTHON = "llama-cpp-python"
    OLLAMA = "Ollama"
    VLLM = "vLLM"
    SGLANG = "SGLang"
    LM_STUDIO = "LM Studio"
    OTHER = "an OpenAI-compatible server"


@dataclass(frozen=True)
class Server:
    """A server that answered. ``told`` is what it says of its models, by name."""

    kind: ServerKind
    models: tuple[str, ...]
    told: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def window(self, model: str) -> int | None:
        """Tokens of context that the server says it keeps; None where it says nothing."""
        return _first(self._card(model), "n_ctx", "max_model_len", "loaded_context_length")

    def parameters(self, model: str) -> int | None:
        """Weights of the model: as told, else as its name says; None where neither does."""
        return _first(self._card(model), "n_params") or named_parameters(model)

    def weight_bytes(self, model: str) -> int | None:
        """Bytes of the weights as they are served, where told."""
        return _first(self._card(model), "size")

    def _card(self, model: str) -> Mapping[str, Any]:
        only = next(iter(self.told.values()), {}) if len(self.told) == 1 else {}
        return self.told.get(model) or self.told.get(f"{model}:latest") or only


class NoServer(Exception):
    """What was there is no server that we can ask: ``status`` 0 where nothing answered."""

    def __init__(self, status: int, what: str):
        super().__init__(what)
        self.status = status


def identify(base: str, key: str, *, seconds: float = 10.0, proxies: bool = True) -> Server:
    """Ask the server at ``base`` (as in OPENAI_BASE_URL) who it is. Raises NoServer.

    ``proxies``: through the environment's proxies, as a client would.
    """
    root = re.sub(r"/v1$", "", base.rstrip("/"))
    headers = {"Authorization": f"Bearer {key or 'none'}"}
    with httpx2.Client(timeout=seconds, trust_env=proxies, headers=headers) as client:
        listed = _listed(client, f"{base.rstrip('/')}/models")
        kind = _kind(client, root, listed)
        told = {str(item["id"]): _flat(item) for item in listed}
        for name, more in _more(client, root, kind).items():
            told[name] = {**told.get(name, {}), **more}
    return Server(kind, tuple(str(item["id"]) for item in listed), told)


def named_parameters(model: str) -> int | None:
    """``Qwen3-4B`` has 4e9, ``smollm2:135m`` has 135e6."""
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z])", model.lower().replace("_", "-"))
    if not found:
        return None
    return int(float(found[1]) * (1_000_000_000 if found[2] == "b" else 1_000_000))


def _listed(client: httpx2.Client, url: str) -> list[dict[str, Any]]:
    try:
        answer = client.get(url)
    except httpx2.HTTPError as error:
        raise NoServer(0, " ".join(str(error).split()) or type(error).__name__) from None
    except httpx2.InvalidURL as error:
        raise NoServer(0, f"no usable address: {error}") from None
    body = _json(answer)
    listed = body.get("data") if isinstance(body, dict) else None
    if answer.status_code != httpx2.codes.OK or not isinstance(listed, list):
        said = " ".join(answer.text[:200].split()) or "nothing"
        status = answer.status_code if answer.status_code != httpx2.codes.OK else 404
        raise NoServer(status, f"{url} answered {answer.status_code}: {said}")
    return [item for item in listed if isinstance(item, dict) and item.get("id")]


def _kind(client: httpx2.Client, root: str, listed: list[dict[str, Any]]) -> ServerKind:
    owners = {str(item.get("owned_by", "")) for item in listed}
    for owner, kind in (
        ("llamacpp", ServerKind.LLAMA_CPP),
        ("vllm", ServerKind.VLLM),
        ("sglang", ServerKind.SGLANG),
    ):
        if owner in owners:
            return kind
    for path, sign, kind in (
        ("/props", "default_generation_settings", ServerKind.LLAMA_CPP),
        ("/api/v0/models", "data", ServerKind.LM_STUDIO),
        ("/get_model_info", "model_path", ServerKind.SGLANG),
        ("/api/version", "version", ServerKind.OLLAMA),
        ("/version", "version", ServerKind.VLLM),
    ):
        body = _get(client, root + path)
        if isinstance(body, dict) and sign in body:
            return kind
    return ServerKind.LLAMA_CPP_PYTHON if owners == {"me"} else ServerKind.OTHER


def _more(client: httpx2.Client, root: str, kind: ServerKind) -> dict[str, dict[str, Any]]:
    """What the server tells of its models at an address of its own."""
    if kind is ServerKind.LM_STUDIO:
        body = _get(client, f"{root}/api/v0/models")
        rows = body.get("data", []) if isinstance(body, dict) else []
        return {str(row.get("id")): row for row in rows if isinstance(row, dict)}
    if kind is ServerKind.OLLAMA:
        found: dict[str, dict[str, Any]] = {}
        for path, keys in (("/api/tags", ("size",)), ("/api/ps", ("context_length",))):
            body = _get(client, root + path)
            for row in body.get("models", []) if isinstance(body, dict) else []:
                kept = found.setdefault(str(row.get("name")), {})
                kept |= {"n_ctx" if k == "context_length" else k: row.get(k) for k in keys}
        return found
    return {}


def _get(client: httpx2.Client, url: str) -> Any:
    try:
        answer = client.get(url)
    except httpx2.HTTPError:
        return None
    return _json(answer) if answer.status_code == httpx2.codes.OK else None


def _json(answer: httpx2.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _flat(item: Mapping[str, Any]) -> dict[str, Any]:
    meta = item.get("meta")
    return {**item, **(meta if isinstance(meta, dict) else {})}


def _first(told: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = told.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
