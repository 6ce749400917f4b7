"""A Hugging Face model as a policy in this process: token ids in, token ids out.

One thread owns the model and decodes all open requests together; new ones join between two
tokens. In float32 it computes with the learner's own weights; in bfloat16 with a copy whose
linear layers are rounded exactly as the learner's autocast rounds them, so that the sampling
and the training probability of a token differ only by the order of summation.

Where rollouts and updates overlap the policy has weights of its own (``apart``), and takes over
the learner's between two turns: all tokens of a turn come from one version. A turn that nobody
waits for any more is given up with its next token.
"""

import asyncio
import contextlib
import hashlib
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from tadpole.errors import ModelError
from tadpole.models.draw import draw
from tadpole.models.memory import give_back
from tadpole.models.padded import PaddedDecoder
from tadpole.models.request import Errand, Request
from tadpole.models.room import room
from tadpole.models.rounded import copy_weights, rounded_copy, separate_copy
from tadpole.models.slots import SlotDecoder, common_prefix, has_plain_attention
from tadpole.protocols import Sampled, Sampling


class InProcessPolicy:
    """Implements :class:`tadpole.protocols.TokenPolicy` on a model in memory.

    ``slots`` bounds how many conversations are decoded together; ``max_context`` (tokens) cuts
    a turn that would outgrow it. ``end_ids`` end a turn. ``apart`` keeps a copy of all weights,
    so that the model may be trained while it is sampled. ``repeatable`` decodes every episode by
    itself: matrix products of other shapes round otherwise, so the last bits of a log-probability
    tell who else was there, and a run that was killed and goes on meets other company. It needs
    a slot for each open episode, and costs what batches save.
    """

    def __init__(
        self,
        model: Any,
        *,
        end_ids: Sequence[int],
        fingerprint: str,
        dtype: torch.dtype = torch.float32,
        slots: int = 32,
        max_context: int = 2048,
        apart: bool = False,
        repeatable: bool = False,
    ):
        self.model = model
        self.dtype = dtype
        self._repeatable = repeatable
        self.max_context = max_context
        self.version = 0
        self._fingerprint = fingerprint
        self._end_ids = frozenset(end_ids)
        self._slots = slots
        self._apart = apart
        self._rounded = separate_copy(model) if apart else model
        if dtype is torch.bfloat16:
            self._rounded = rounded_copy(self._rounded)
        self._rounded.eval()
        self._padded = not has_plain_attention(model.config)
        self._decoder = (
            None if self._padded else SlotDecoder(self._rounded, slots, dtype, repeatable)
        )
        self._owner: list[str | None] = [None] * slots
        self._waiting: list[Request] = []
        self._active: list[Request] = []  # _active[i] decodes in slot i
        self._errands: list[Errand] = []
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def fingerprint(self) -> str:
        """The base weights and the number of updates since."""
        return self._fingerprint

    async def sample(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int
    ) -> Sampled:
        """See the protocol. Raises ContextFull where the prompt leaves no room to answer."""
        left = room(prompt_ids, self.max_context)
        self._ensure_thread()
        loop = asyncio.get_running_loop()
        request = Request(
            list(prompt_ids),
            sampling,
            episode,
            torch.Generator().manual_seed(_stream(seed, episode, len(prompt_ids))),
            min(sampling.max_tokens, left),
            loop.create_future(),
            loop,
        )
        self._inbox.put(request)
        return await request.future

    def release(self, episode: str) -> None:
        """See the protocol."""
        self._inbox.put(episode)

    async def rest(self) -> None:
        """Drop all caches, their memory too, once no turn is open.

        Raises ModelError where the policy is closed meanwhile.
        """
        await self._between_turns(self._forget)

    def _forget(self) -> None:
        if self._decoder is not None:
            self._decoder.forget()
        give_back()  # decoding leaves holes of every length

    def refresh(self, fingerprint: str, version: int) -> None:
        """The model's weights have changed: sample from the new ones, forget all caches.

        Only while no request is open (between a rollout and the next).
        """
        self._forget()
        if self._rounded is not self.model:
            copy_weights(self.model, self._rounded, everything=self._apart)
        self._fingerprint, self.version = fingerprint, version

    async def renew(self, fingerprint: str, version: int) -> None:
        """The same while requests are open: turns that have begun end on the old weights.

        Only a policy that is ``apart`` can: otherwise its weights have changed already. The
        model must rest until this returns. Raises ModelError where the policy is closed.
        """
        await self._between_turns(partial(self.refresh, fingerprint, version))

    async def _between_turns(self, work: Callable[[], None]) -> None:
        """Have the thread do ``work`` while it decodes nothing; no turn begins before that.

        Turns of cancelled episodes have left their slots by then, and meet neither new weights
        nor caches that are gone.
        """
        if self._thread is None:
            work()
            return
        errand = Errand(work)
        self._inbox.put(errand)
        await asyncio.wrap_future(errand.future)

    def close(self) -> None:
        """End the decoding thread; open requests fail. Idempotent."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="policy", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while True:
            idle = not self._active and not self._waiting and not self._errands
            if not self._receive(block=idle):
                closed = ModelError("the policy was closed")
                for request in (*self._active, *self._waiting):
                    request.finish(closed)
                for errand in self._errands:
                    errand.refuse(closed)
                self._active, self._waiting, self._errands = [], [], []
                return
            self._waiting = [request for request in self._waiting if not request.is_given_up]
            while self._errands and not self._active:
                self._errands.pop(0).run()
            try:
                with torch.no_grad(), self._numerics():
                    if self._decoder is None:
                        self._decode_padded()
                    else:
                        self._decode_slots(self._decoder)
            except Exception as error:  # the thread must answer, whatever happened
                broken = (*self._active, *self._waiting)
                self._active, self._waiting = [], []
                for request in broken:
                    request.finish(ModelError(f"sampling failed: {type(error).__name__}: {error}"))

    def _numerics(self) -> Any:
        if self.dtype is torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.model.device.type, dtype=self.dtype)

    def _receive(self, block: bool) -> bool:
        """Take all that has arrived. False: close."""
        while True:
            try:
                message = self._inbox.get(block=block)
            except queue.Empty:
                return True
            block = False
            if message is None:
                return False
            if isinstance(message, str):
                self._owner = [None if owner == message else owner for owner in self._owner]
            elif isinstance(message, Errand):
                self._errands.append(message)
            else:
                self._waiting.append(message)

    def _decode_slots(self, decoder: SlotDecoder) -> None:
        """One token for every open request; requests that wait are read in first."""
        first, tails = len(self._active), []
        for request in self._admissible():
            low = len(self._active)
            slot = self._slot_of(request, decoder, low)
            if self._repeatable and self._owner[slot] != request.episode:
                decoder.empty(slot)
            decoder.swap(slot, low)
            self._owner[slot], self._owner[low] = self._owner[low], request.episode
            done = decoder.adopt(low, request.prompt)
            tails.append(request.prompt[done:])
            self._active.append(request)
            self._waiting.remove(request)
        if tails:
            self._take(first, decoder.extend(first, tails))
        elif self._active:
            self._take(0, decoder.extend(0, [[request.ids[-1]] for request in self._active]))
        for slot in range(len(self._active) - 1, -1, -1):
            request = self._active[slot]
            if not self._is_over(request):
                continue
            last = len(self._active) - 1
            decoder.swap(slot, last)
            self._owner[slot], self._owner[last] = self._owner[last], self._owner[slot]
            self._active[slot] = self._active[last]
            self._active.pop()
            request.finish(self._result(request))

    def _admissible(self) -> list[Request]:
        """Waiting requests that fit. Of several that begin alike only the first is read now:
        the others copy its keys and values in the next round."""
        chosen: list[Request] = []
        if self._errands:
            return chosen  # they begin on the new weights
        for request in self._waiting:
            if len(self._active) + len(chosen) >= self._slots:
                break
            alike = any(
                common_prefix(other.prompt, request.prompt) > len(request.prompt) // 2
                for other in chosen
            )
            if not alike or self._repeatable or request.episode in self._owner:
                chosen.append(request)
        return chosen

    def _slot_of(self, request: Request, decoder: SlotDecoder, low: int) -> int:
        """The slot that the episode owns, else a free one, else the shortest idle one."""
        for slot in range(low, self._slots):
            if self._owner[slot] == request.episode:
                return slot
        idle = range(low, self._slots)
        return min(idle, key=lambda slot: (self._owner[slot] is not None, len(decoder.ids[slot])))

    def _decode_padded(self) -> None:
        """Serve waiting requests as one batch, from first token to last."""
        most = 1 if self._repeatable else self._slots
        batch, self._waiting = self._waiting[:most], self._waiting[most:]
        if not batch:
            return
        self._active = batch
        decoder = PaddedDecoder(self._rounded)
        self._take(0, decoder.begin([request.prompt for request in batch]))
        while not all(map(self._is_over, batch)):
            self._take(0, decoder.extend([request.ids[-1] for request in batch]))
        self._active = []
        for request in batch:
            request.finish(self._result(request))

    def _take(self, first: int, logits_BV: torch.Tensor) -> None:
        requests = self._active[first:]
        if not self._repeatable:
            self._take_rows(requests, logits_BV)
            return
        for request, logits_1V in zip(requests, torch.split(logits_BV, 1), strict=True):
            self._take_rows([request], logits_1V)

    def _take_rows(self, requests: Sequence[Request], logits_BV: torch.Tensor) -> None:
        ids, logprobs = draw(
            logits_BV.cpu(), [r.sampling for r in requests], [r.generator for r in requests]
        )
        for request, token, logprob in zip(requests, ids, logprobs, strict=True):
            if not self._is_done(request):
                request.ids.append(token)
                request.logprobs.append(logprob)

    def _is_done(self, request: Request) -> bool:
        ended = bool(request.ids) and request.ids[-1] in self._end_ids
        return ended or len(request.ids) >= request.limit

    def _is_over(self, request: Request) -> bool:
        return request.is_given_up or self._is_done(request)

    def _result(self, request: Request) -> Sampled:
        ended = request.ids[-1] in self._end_ids
        return Sampled(tuple(request.ids), tuple(request.logprobs), ended, self.version)


def _stream(seed: int, episode: str, position: int) -> int:
    """A random stream for one turn that does not depend on what else is being sampled."""
    digest = hashlib.sha256(f"{seed} {episode} {position}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
