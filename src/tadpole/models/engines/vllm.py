"""vLLM's completions in token ids, with LoRA adapters or whole weights taken in at each update.

Written from its documentation and wire format; the tests speak with a local server that does the
same. It was not run against vLLM on a GPU. Start the server

* with ``--logprobs-mode processed_logprobs``: its default gives probabilities before temperature;
* with ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`` and ``--enable-lora`` for adapters;
* with ``VLLM_SERVER_DEV_MODE=1`` and on the directory ``current`` below ``policy.engine_dir`` for
  whole weights: it reads that path again, a link to the newest.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from tadpole.errors import ModelError
from tadpole.models.engines.adopted import Adopted
from tadpole.models.engines.engine import Answer, Wire, checked
from tadpole.protocols import Sampling

_BY_ID = "token_id:"  # how it writes a token whose id was asked for


class VLLM:
    """One vLLM server. ``model`` is the name that it serves the base model under."""

    def __init__(self, url: str, *, model: str, adapter: bool = False, seconds: float = 1800.0):
        self._wire = Wire(url, seconds)
        self.url = self._wire.url
        self._model, self._adapter = model, adapter
        self._adopted = Adopted(self._load_adapter, self._unload_adapter)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, end_ids: Collection[int], seed: int
    ) -> Answer:
        """See the protocol."""
        body = {
            "model": self._adopted.name or self._model,
            "prompt": list(prompt_ids),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": seed,
            "stop_token_ids": sorted(end_ids),
            "logprobs": 0,  # of the drawn token alone
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
            "skip_special_tokens": False,
        }
        answer = await self._wire.post("/v1/completions", body)
        try:
            (choice,) = answer["choices"]
            finish, given = choice["finish_reason"], choice["logprobs"]
            logprobs, words = given["token_logprobs"], given["tokens"]
            ids, prompt = choice.get("token_ids"), choice.get("prompt_token_ids")
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                f"{self.url}/v1/completions answers in another format than known"
            ) from None
        if ids is None:  # versions before return_token_ids
            if not all(str(word).startswith(_BY_ID) for word in words):
                raise ModelError(f"{self.url} does not give token ids: vLLM 0.10.2 or newer does")
            ids = [int(word.removeprefix(_BY_ID)) for word in words]
        if prompt is not None and list(prompt) != list(prompt_ids):
            raise ModelError(f"{self.url} read another prompt than the one that was sent")
        return checked(self.url, ids, logprobs, finish, limit=sampling.max_tokens, end_ids=end_ids)

    async def load(self, weights: Path, name: str) -> None:
        """See the protocol. All turns must have ended: the server drops its cache."""
        if self._adapter:
            await self._adopted.take(weights, name)
        else:
            await self._wire.post("/collective_rpc", {"method": "reload_weights"}, json=False)
            await self._wire.post("/reset_prefix_cache", {}, json=False)

    async def _load_adapter(self, weights: Path, name: str) -> None:
        body = {"lora_name": name, "lora_path": str(weights)}
        # Both answer in a plain sentence.
        await self._wire.post("/v1/load_lora_adapter", body, json=False)

    async def _unload_adapter(self, name: str) -> None:
        await self._wire.post("/v1/unload_lora_adapter", {"lora_name": name}, json=False)

    def close(self) -> None:
        """See the protocol."""
        self._wire.close()
