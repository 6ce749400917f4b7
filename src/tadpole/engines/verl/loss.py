"""Our policy loss in verl's registry: the very function of :mod:`tadpole.rl.loss`.

verl's own ``dppo_tv`` truncates p / q, which is another gradient. Loaded in every process of a
cluster by the entry point ``verl.plugins``; verl says nothing where that fails, so the trainer
asks its workers (:mod:`tadpole.engines.verl.registered`).
"""

from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_policy_loss

from tadpole.engines.verl.places import DROPPED, GAPS, LOSS, TOKENS
from tadpole.rl.loss import kept_tokens, policy_loss


@register_policy_loss(LOSS)  # type: ignore[untyped-decorator, unused-ignore]
def tadpole_dppo(  # noqa: PLR0917 - verl's signature
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """(loss, sums) of a micro-batch; all tensors [rows, tokens], ``old_log_prob`` the rollout's.

    |T| is that of all ranks and micro-batches (``config.global_batch_info``); verl averages
    gradients over its data-parallel ranks, hence ``dp_size``.
    """
    mask = response_mask.bool()
    logp_N, logq_N, advantage_N = log_prob[mask], old_log_prob[mask], advantages[mask]
    whole = config.global_batch_info
    trainable = whole.get("batch_num_tokens") or max(1, int(mask.sum()))
    ranks, delta = whole.get("dp_size", 1), config.clip_ratio_high
    loss = policy_loss(logp_N, logq_N, advantage_N, trainable, delta) * ranks
    with torch.no_grad():
        gaps = float((logp_N.exp() - logq_N.exp()).abs().sum())
        dropped = int((~kept_tokens(logp_N, logq_N, advantage_N, delta)).sum())
    return loss, {GAPS: gaps, DROPPED: float(dropped), TOKENS: float(mask.sum())}
