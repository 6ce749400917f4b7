"""The published policy loss: DPPO with the binary total-variation mask. Pure.

p is the training probability of a sampled token, q its rollout probability, A its advantage:

    drop the token if A > 0 and p - q > delta, or A <= 0 and p - q < -delta
    loss = -(1 / |T|) * sum over kept tokens of A * p / q

|T| counts ALL trainable tokens of the update, kept or dropped. (arXiv 2609.07925, displayed
formula; the binary TV form of DPPO, arXiv 2602.04879.) Shapes: N is any set of trainable tokens.
"""

import torch


def kept_tokens(
    logp_N: torch.Tensor, logq_N: torch.Tensor, advantage_N: torch.Tensor, delta: float = 0.2
) -> torch.Tensor:
    """Boolean mask [N] of the tokens that contribute. Carries no gradient."""
    gap_N = (logp_N.exp() - logq_N.exp()).detach()
    dropped_N = torch.where(advantage_N > 0, gap_N > delta, gap_N < -delta)
    return ~dropped_N


def policy_loss(
    logp_N: torch.Tensor,
    logq_N: torch.Tensor,
    advantage_N: torch.Tensor,
    trainable: int,
    delta: float = 0.2,
) -> torch.Tensor:
    """Scalar loss of N tokens out of an update's ``trainable`` = |T|.

    Micro-batches add up: the sum of their losses is the loss of the whole batch.
    """
    kept_N = kept_tokens(logp_N, logq_N, advantage_N, delta)
    # A dropped ratio may be infinite. It is taken out before the exponential, not multiplied by
    # zero after it, which would leave a gradient of nan.
    log_ratio_N = torch.where(kept_N, logp_N - logq_N, torch.zeros_like(logp_N))
    return -(log_ratio_N.exp() * advantage_N * kept_N).sum() / trainable
