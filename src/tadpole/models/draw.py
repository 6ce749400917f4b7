"""Drawing tokens, and their log-probabilities under the very distribution they are drawn from."""

import torch

from tadpole.protocols import Sampling


def log_distribution(logits_BV: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities [rows, vocabulary] after temperature, top-k and top-p, renormalized.

    Temperature 0 is the greedy limit: all mass on the largest logit.
    """
    if sampling.temperature <= 0:
        greedy = torch.full_like(logits_BV, -torch.inf)
        return greedy.scatter(-1, logits_BV.argmax(-1, keepdim=True), 0.0)
    scaled = logits_BV / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        least = scaled.topk(sampling.top_k).values[..., -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = scaled.sort(descending=True)
        mass = ordered.softmax(-1)
        # A token stays while the mass before it is below top_p: the first always stays.
        outside = mass.cumsum(-1) - mass >= sampling.top_p
        scaled = scaled.masked_fill(outside.gather(-1, order.argsort(-1)), -torch.inf)
    return scaled.log_softmax(-1)


def draw(
    logits_BV: torch.Tensor, sampling: list[Sampling], generators: list[torch.Generator]
) -> tuple[list[int], list[float]]:
    """One token per row, each from its own distribution and random stream."""
    if all(one == sampling[0] for one in sampling):
        logs_BV = log_distribution(logits_BV, sampling[0])
    else:
        rows = zip(torch.split(logits_BV, 1), sampling, strict=True)
        logs_BV = torch.cat([log_distribution(row, one) for row, one in rows])
    # By the inverse of the distribution function: one random number a row, where multinomial
    # would draw one for each token of the vocabulary.
    mass_BV = logs_BV.exp().cumsum(-1)
    uniform_B1 = torch.stack([torch.rand(1, generator=one) for one in generators])
    total_B1 = mass_BV[:, -1:]
    # Rounding must not reach the total: beyond it there may be only tokens without any mass.
    point_B1 = torch.minimum(uniform_B1 * total_B1, total_B1.nextafter(torch.zeros(1)))
    picked_B1 = torch.searchsorted(mass_BV, point_B1, right=True)
    return picked_B1[:, 0].tolist(), logs_BV.gather(-1, picked_B1)[:, 0].tolist()
