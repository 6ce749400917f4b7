"""Batched decoding over a key-value cache with one slot a conversation.

A slot keeps what its conversation has seen, so the next turn of an episode costs only its new
tokens, and episodes of one task share the work on their common prompt. Works for every decoder
whose layers are all full attention (Llama, Qwen2, Qwen3, ...); see ``padded.py`` for the rest.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache

GROWTH = 256  # tokens by which the cache grows


class SlotCache(Cache):
    """Keys and values, per layer ``[slot, head, position, channel]``; grows with use.

    The model calls :meth:`update` with the new positions of the slots in ``[low, high)``.
    """

    def __init__(self, config: Any, slots: int, dtype: torch.dtype, device: torch.device):
        super().__init__(layers=[])
        heads = config.num_key_value_heads
        channels = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        self._shape = (slots, heads, channels)
        self._options: dict[str, Any] = {"dtype": dtype, "device": device}
        self._layers: int = config.num_hidden_layers
        self.clear()
        self._range = slice(0, 0)
        self._rows = self._positions = torch.empty(0, dtype=torch.long)
        self._seen = 0

    def clear(self) -> None:
        """Drop all positions and their memory."""
        slots, heads, channels = self._shape
        nothing = torch.empty(slots, heads, 0, channels, **self._options)
        self.length = 0
        self.keys, self.values = [nothing] * self._layers, [nothing] * self._layers

    def reserve(self, length: int) -> None:
        """Make room for ``length`` positions in every slot."""
        if length <= self.length:
            return
        new = -(-length // GROWTH) * GROWTH
        slots, heads, channels = self._shape
        for store in (self.keys, self.values):
            for layer, old in enumerate(store):
                grown = torch.zeros(slots, heads, new, channels, **self._options)
                grown[:, :, : self.length] = old
                store[layer] = grown
        self.length = new

    def aim(self, low: int, high: int, positions: torch.Tensor) -> None:
        """Direct the next forward pass at slots ``[low, high)`` and ``positions`` [rows, new]."""
        self._seen = int(positions.max()) + 1
        self.reserve(self._seen)
        self._range = slice(low, high)
        self._rows = torch.arange(low, high, device=positions.device)[:, None]
        self._positions = positions

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store ``[rows, head, new, channel]``; returns all that the rows can see so far."""
        key, value = self.keys[layer_idx], self.values[layer_idx]
        key[self._rows, :, self._positions] = key_states.transpose(1, 2).to(key.dtype)
        value[self._rows, :, self._positions] = value_states.transpose(1, 2).to(value.dtype)
        seen = (self._range, slice(None), slice(0, self._seen))
        # Stored in the rollout's number format: under autocast, attention rounds the query to it.
        return key[seen], value[seen]

    def get_seq_length(self, layer_idx: int = 0, cache_position: Any = None) -> int:
        """Positions seen by the longest slot in the current pass."""
        return self._seen

    def swap(self, a: int, b: int, length: int) -> None:
        """Exchange two slots' first ``length`` positions."""
        for store in (*self.keys, *self.values):
            kept = store[a, :, :length].clone()
            store[a, :, :length] = store[b, :, :length]
            store[b, :, :length] = kept

    def copy(self, source: int, target: int, length: int) -> None:
        """Give ``target`` the first ``length`` positions of ``source``."""
        for store in (*self.keys, *self.values):
            store[target, :, :length] = store[source, :, :length]


class SlotDecoder:
    """Extends many conversations at once. Not thread-safe: one thread owns it.

    ``apart``: each conversation is computed by itself and takes nothing over from another one, so
    that its numbers do not depend, to the last bit, on what else is decoded.
    """

    def __init__(self, model: Any, slots: int, dtype: torch.dtype, apart: bool = False):
        self.model, self.apart = model, apart
        self.cache = SlotCache(model.config, slots, dtype, model.device)
        self.ids: list[list[int]] = [[] for _ in range(slots)]
        self._argument = cache_argument(model)

    def forget(self) -> None:
        """Drop every slot's content, and the memory that it takes."""
        for ids in self.ids:
            ids.clear()
        self.cache.clear()

    def empty(self, slot: int) -> None:
        """Forget what one slot holds."""
        self.ids[slot] = []

    def swap(self, a: int, b: int) -> None:
        """Exchange two slots."""
        if a != b:
            self.cache.swap(a, b, max(len(self.ids[a]), len(self.ids[b])))
            self.ids[a], self.ids[b] = self.ids[b], self.ids[a]

    def adopt(self, slot: int, prompt: Sequence[int]) -> int:
        """Set ``slot`` to the longest prefix of ``prompt`` that any slot holds; its length.

        At least one token is always left to compute: its logits are what is asked for.
        """
        best, source = 0, slot
        for candidate, ids in enumerate(self.ids):
            if self.apart and candidate != slot:
                continue
            common = common_prefix(ids, prompt)
            if common > best or (common == best and candidate == slot):
                best, source = common, candidate
        best = min(best, len(prompt) - 1)
        if source != slot and best:
            self.cache.copy(source, slot, best)
        self.ids[slot] = list(prompt[:best])
        return best

    @torch.no_grad()
    def extend(self, low: int, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Append ``tokens[i]`` to slot ``low + i``; logits [rows, vocabulary] after the last."""
        if self.apart and len(tokens) > 1:
            return torch.cat([self.extend(low + i, [row]) for i, row in enumerate(tokens)])
        device = self.model.device
        rows, width = len(tokens), max(map(len, tokens))
        starts = torch.tensor([len(self.ids[low + i]) for i in range(rows)], device=device)
        # Rows that are shorter are padded on the right: what is written there lies beyond the
        # row's end, is masked for every query that counts, and is overwritten later.
        padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in tokens], device=device)
        positions = starts[:, None] + torch.arange(width, device=device)
        self.cache.aim(low, low + rows, positions)
        seen = torch.arange(self.cache.get_seq_length(), device=device)
        mask = seen[None, None, None, :] <= positions[:, None, :, None]
        hidden = self.model.base_model(
            input_ids=padded,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._argument: self.cache},
        ).last_hidden_state
        for i, row in enumerate(tokens):
            self.ids[low + i].extend(row)
        last = torch.tensor([len(row) - 1 for row in tokens], device=device)
        picked = hidden[torch.arange(rows, device=device), last]
        logits: torch.Tensor = self.model.get_output_embeddings()(picked)
        return logits.float()


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading items two sequences share."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def has_plain_attention(config: Any) -> bool:
    """Whether every layer is full attention: one key and value per token and nothing else."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return kinds == {"full_attention"} and hasattr(config, "num_key_value_heads")


def cache_argument(model: Any) -> str:
    """What this version of transformers calls the cache, in the arguments and in the output."""
    parameters = inspect.signature(type(model.base_model).forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
