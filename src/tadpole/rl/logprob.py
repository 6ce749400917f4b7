"""Log-probabilities of chosen tokens, without ever holding a batch's whole-vocabulary logits."""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tadpole.rl.batch import MicroBatch

CHUNK = 256  # tokens whose logits exist at one time


def token_logprobs(
    model: Any, batch: MicroBatch, temperature: float = 1.0, chunk: int = CHUNK
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logp_N, entropy_N) of a micro-batch's N trainable tokens, in nats.

    The logits of at most ``chunk`` tokens exist at one time, in the backward pass too.
    """
    device = model.device
    arguments: dict[str, Any] = {}
    if batch.shared:
        arguments["attention_mask"] = batch.attention_B1TT().to(device)
        arguments["position_ids"] = batch.position_BT.to(device)
    # Unshared rows are padded on the right only: causal attention never looks there.
    hidden_BTD = model.base_model(
        input_ids=batch.ids_BT.to(device), use_cache=False, **arguments
    ).last_hidden_state
    hidden_ND = hidden_BTD.flatten(0, 1)[batch.predictor_N.to(device)]
    target_N = batch.target_N.to(device)
    head = model.get_output_embeddings()
    parts = [
        checkpoint(_score, head, hidden_CD, target_C, temperature, use_reentrant=False)
        for hidden_CD, target_C in zip(
            torch.split(hidden_ND, chunk), torch.split(target_N, chunk), strict=True
        )
    ]
    logps, entropies = zip(*parts, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def _score(
    head: Any, hidden_CD: torch.Tensor, target_C: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logs_CV = (head(hidden_CD).float() / temperature).log_softmax(-1)
    entropy_C = -(logs_CV.detach().exp() * logs_CV.detach()).sum(-1)
    return logs_CV.gather(-1, target_C[:, None]).squeeze(-1), entropy_C
