"""What a rollout server is asked for, whichever it is, and which of its answers are believed.

A trained token needs its id and the log-probability that it was drawn with. Nothing is made up
where a server leaves one of them out: the turn is refused, and the episode is made again.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import httpx2

from tadpole.errors import ModelError
from tadpole.protocols import Sampling


class EngineDown(ModelError):
    """A server that cannot be reached, or that broke down: another one may answer."""


class Finish(StrEnum):
    """Why a server ended a turn, in the words of both servers."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"  # the server threw the turn away: it is not a whole one


@dataclass(frozen=True)
class Answer:
    """One turn as a server gave it, checked."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # nats
    ended: bool  # by an end token, not by a limit
    weights: str | None = None  # name of the weights that drew it, where the server says


class Engine(Protocol):
    """One server. Raises EngineDown where another may do better, ModelError where none would."""

    url: str

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, end_ids: Collection[int], seed: int
    ) -> Answer:
        """Sample one turn from the weights that were loaded last."""
        ...

    async def load(self, weights: Path, name: str) -> None:
        """Take ``weights``, a directory that the server can read, into use as ``name``."""
        ...

    def close(self) -> None:
        """Let go of the connections. Idempotent."""
        ...


class Wire:
    """JSON over HTTP to one server. ``seconds`` bounds one answer."""

    def __init__(self, url: str, seconds: float = 1800.0):
        self.url = url.rstrip("/")
        self.seconds = seconds
        self._client: httpx2.AsyncClient | None = None

    async def post(self, path: str, body: dict[str, Any], *, json: bool = True) -> Any:
        """The answer to a POST: parsed where ``json``, else its text.

        Raises EngineDown where there is none, ModelError where the server refuses the request.
        """
        if self._client is None:
            # As many connections as there are episodes; a proxy is not for a rollout server.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
            timeout = httpx2.Timeout(self.seconds, connect=10.0)
            self._client = httpx2.AsyncClient(
                limits=limits,
                timeout=timeout,
                trust_env=False,
                # Reading all certificates takes longer than many an answer; http has no use for it.
                verify=self.url.startswith("https://"),
            )
        where = f"{self.url}{path}"
        try:
            answer = await self._client.post(where, json=body)
        except httpx2.TimeoutException:
            raise EngineDown(f"{where} did not answer within {self.seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise EngineDown(f"{where} cannot be reached: {_line(reason)}") from None
        if answer.status_code != 200:
            kind = ModelError if answer.status_code in {400, 401, 403, 422} else EngineDown
            raise kind(f"{where} answered HTTP {answer.status_code}: {_line(answer.text)}")
        if not json:
            return answer.text
        try:
            return answer.json()
        except ValueError:
            raise EngineDown(f"{where} did not answer in JSON: {_line(answer.text)}") from None

    def close(self) -> None:
        """Forget the connections."""
        self._client = None


def checked(
    url: str,
    ids: Sequence[Any],
    logprobs: Sequence[Any],
    finish: str,
    *,
    limit: int,
    end_ids: Collection[int],
    weights: str | None = None,
) -> Answer:
    """An answer that can be trained on. Raises ModelError, EngineDown for a turn thrown away.

    ``limit`` is the number of tokens that was asked for at most.
    """
    if finish == Finish.ABORT:
        raise EngineDown(f"{url} threw the turn away (finish reason abort)")
    wrong = None
    if finish not in {Finish.STOP, Finish.LENGTH}:
        wrong = f"ended a turn for an unknown reason ({finish})"
    elif not ids or len(ids) != len(logprobs):
        wrong = f"gave {len(ids)} tokens with {len(logprobs)} log-probabilities"
    elif not all(isinstance(token, int) and token >= 0 for token in ids):
        wrong = "gave token ids that are no whole numbers"
    elif not all(_is_logprob(value) for value in logprobs):
        wrong = "gave log-probabilities that are none (null, NaN, or above 0)"
    elif len(ids) > limit:
        wrong = f"gave {len(ids)} tokens, asked for {limit} at most"
    elif any(token in end_ids for token in ids[:-1]):
        wrong = "went on after the end of the turn"
    elif finish == Finish.STOP and ids[-1] not in end_ids:
        wrong = (
            "ended a turn without its end token (a stop string, or the token was trimmed): what "
            "the policy drew is not known"
        )
    if wrong is not None:
        raise ModelError(f"{url} {wrong}")
    return Answer(
        tuple(ids), tuple(min(0.0, float(v)) for v in logprobs), ids[-1] in end_ids, weights
    )


def _is_logprob(value: object) -> bool:
    # Rounding may carry a certain token a hair above 0.
    return isinstance(value, int | float) and math.isfinite(value) and value <= 1e-4


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
