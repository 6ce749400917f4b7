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
    ids, logprobs = [], []
    plain = all(s == sampling[0] for s in sampling)
    logs_BV = log_distribution(logits_BV, sampling[0]) if plain else None
    for i, (one, generator) in enumerate(zip(sampling, generators, strict=True)):
        logs_V = (
            logs_BV[i] if logs_BV is not None else log_distribution(logits_BV[i : i + 1], one)[0]
        )
        token = int(torch.multinomial(logs_V.exp(), 1, generator=generator))
        ids.append(token)
        logprobs.append(float(logs_V[token]))
    return ids, logprobs
