"""A rollout engine of verl as a policy of ours: token ids in, ids and log-probabilities out.

A turn that new weights interrupted goes on under them; it carries the oldest version that sampled
a part of it, so that its lag is never understated. Its log-probabilities are those that each
token was drawn with.
"""

from collections.abc import Collection, Sequence
from typing import Any

from tadpole.engines.verl.places import Names
from tadpole.errors import ModelError
from tadpole.models.engines.engine import Finish, checked
from tadpole.protocols import Sampled, Sampling

WHERE = "the rollout engine"


class ClientPolicy:
    """Implements :class:`tadpole.protocols.TokenPolicy` for one episode.

    ``client`` is verl's ``LLMServerClient``; ``begun`` the version in force when the episode was
    drawn, the oldest that can have sampled any of it.
    """

    def __init__(self, client: Any, names: Names, begun: int, end_ids: Collection[int]):
        self._client = client
        self._fingerprint = names.of_version(begun)
        self._end_ids = frozenset(end_ids)

    @property
    def fingerprint(self) -> str:
        """See the protocol: the weights in force when the episode was drawn."""
        return self._fingerprint

    async def sample(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int
    ) -> Sampled:
        """See the protocol. The engines draw from streams of their own: ``seed`` is not used."""
        asked = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "max_tokens": sampling.max_tokens,
            "stop_token_ids": sorted(self._end_ids),
            "logprobs": True,
        }
        try:
            out = await self._client.generate(
                request_id=episode, prompt_ids=list(prompt_ids), sampling_params=asked
            )
        except Exception as error:  # Ray wraps whatever the engine raised
            reason = " ".join(str(error).split())[:300]
            raise ModelError(f"{WHERE} failed: {type(error).__name__}: {reason}") from error
        ids, version = list(out.token_ids), out.extra_fields.get("min_global_steps")
        if version is None:
            raise ModelError(f"{WHERE} does not say which weights sampled a turn")
        answer = checked(
            WHERE,
            ids,
            list(out.log_probs or ()),
            Finish.LENGTH if len(ids) >= sampling.max_tokens else Finish.STOP,
            limit=sampling.max_tokens,
            end_ids=self._end_ids,
        )
        return Sampled(answer.ids, answer.logprobs, answer.ended, int(version))

    def release(self, episode: str) -> None:
        """See the protocol: the engines forget by themselves."""
