"""SGLang's native endpoints: ``/generate`` in token ids, and new weights from disk.

Written from its documentation and wire format; the tests speak with a local server that does the
same. It was not run against SGLang on a GPU.

Its log-probabilities are those after the temperature and before any truncation, so training asks
for top-p 1 and no top-k. It draws from a stream of its own: seeds are not passed on.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tadpole.errors import ModelError
from tadpole.models.engines.adopted import Adopted
from tadpole.models.engines.engine import Answer, EngineDown, Wire, checked
from tadpole.protocols import Sampling


class SGLang:
    """One SGLang server. ``adapter``: the weights are LoRA adapters on the model that it serves."""

    def __init__(self, url: str, *, adapter: bool = False, seconds: float = 1800.0):
        self._wire = Wire(url, seconds)
        self.url = self._wire.url
        self._adapter = adapter
        self._adopted = Adopted(self._load_adapter, self._unload_adapter)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, end_ids: Collection[int], seed: int
    ) -> Answer:
        """See the protocol; ``seed`` is not used."""
        body = {
            "input_ids": list(prompt_ids),
            "sampling_params": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k or -1,
                "min_p": 0.0,
                "max_new_tokens": sampling.max_tokens,
                "stop_token_ids": sorted(end_ids),
                "skip_special_tokens": False,
                "no_stop_trim": True,
            },
            "return_logprob": True,
        }
        if self._adapter:
            body["lora_path"] = self._adopted.name
        answer = await self._asked(body)
        try:
            meta = answer["meta_info"]
            finish = meta["finish_reason"]["type"]
            drawn = [(entry[0], entry[1]) for entry in meta.get("output_token_logprobs") or []]
            read, listed = meta["prompt_tokens"], answer.get("output_ids")
            weights = None if self._adapter else meta.get("weight_version")
        except (KeyError, TypeError, IndexError):
            raise ModelError(f"{self.url}/generate answers in another format than known") from None
        if read != len(prompt_ids):
            raise ModelError(
                f"{self.url} read {read} prompt tokens, {len(prompt_ids)} were sent: it changes "
                "prompts"
            )
        ids = [token for _, token in drawn]
        if listed is not None and list(listed) != ids:
            raise ModelError(
                f"{self.url} gave other tokens than it gave log-probabilities of (speculative "
                "decoding?)"
            )
        return checked(
            self.url,
            ids,
            [logprob for logprob, _ in drawn],
            finish,
            limit=sampling.max_tokens,
            end_ids=end_ids,
            weights=weights,
        )

    async def _asked(self, body: dict[str, Any]) -> Any:
        try:
            return await self._wire.post("/generate", body)
        except ModelError as error:
            name = self._adopted.name
            if name is None or name not in str(error):
                raise
            # It does not know the adapters: it was started again, and has to load them first.
            raise EngineDown(str(error)) from None

    async def load(self, weights: Path, name: str) -> None:
        """See the protocol. All turns must have ended: the server drops its cache."""
        if self._adapter:
            await self._adopted.take(weights, name)
        else:
            body = {
                "model_path": str(weights),
                "weight_version": name,
                "abort_all_requests": False,
                "flush_cache": True,
            }
            await self._change("update_weights_from_disk", body)

    async def _load_adapter(self, weights: Path, name: str) -> None:
        body = {"lora_name": name, "lora_path": str(weights)}
        await self._change("load_lora_adapter", body)

    async def _unload_adapter(self, name: str) -> None:
        await self._wire.post("/unload_lora_adapter", {"lora_name": name})

    async def _change(self, verb: str, body: dict[str, Any]) -> None:
        answer = await self._wire.post(f"/{verb}", body)
        # It answers 200 with success false where, for one, its cache could not be dropped.
        if not isinstance(answer, dict) or answer.get("success") is not True:
            said = answer if not isinstance(answer, dict) else answer.get("message", answer)
            raise EngineDown(f"{self.url}/{verb} did not take the new weights: {said}")

    def close(self) -> None:
        """See the protocol."""
        self._wire.close()
