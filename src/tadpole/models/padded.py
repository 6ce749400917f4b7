"""Decoding for models whose cache is not one key-value pair per token (Qwen3.5, Mamba, ...).

Every turn starts from its whole context, left-padded, with the model's own cache: correct for
any decoder, and slower than ``slots.py`` by the re-reading. On a GPU with such a model prefer a
token-level server.
"""

from collections.abc import Sequence
from typing import Any

import torch

from tadpole.models.slots import cache_argument


class PaddedDecoder:
    """One batch of conversations, decoded until all are done."""

    def __init__(self, model: Any):
        self.model = model
        self._cache: object = None
        self._mask_BT = torch.empty(0)

    @torch.no_grad()
    def begin(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Read the prompts; logits [rows, vocabulary] after each one's last token."""
        device = self.model.device
        width = max(map(len, prompts))
        pads = [width - len(prompt) for prompt in prompts]
        ids_BT = torch.tensor(
            [[*[0] * pad, *prompt] for pad, prompt in zip(pads, prompts, strict=True)],
            device=device,
        )
        self._mask_BT = torch.tensor(
            [[0] * pad + [1] * (width - pad) for pad in pads], device=device
        )
        self._cache = None
        return self._forward(ids_BT)

    @torch.no_grad()
    def extend(self, tokens: Sequence[int]) -> torch.Tensor:
        """Append one token to every row; logits [rows, vocabulary] after it."""
        ids_B1 = torch.tensor(tokens, device=self.model.device)[:, None]
        self._mask_BT = torch.cat([self._mask_BT, torch.ones_like(ids_B1)], dim=1)
        return self._forward(ids_B1)

    def _forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        positions = (self._mask_BT.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        out = self.model(
            input_ids=ids_BT,
            attention_mask=self._mask_BT,
            position_ids=positions,
            **{cache_argument(self.model): self._cache},
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = out[cache_argument(self.model)]
        logits: torch.Tensor = out.logits[:, -1]
        return logits.float()
