"""A second set of weights beside those that are trained: rounded for the rollout, or apart."""

import copy
from typing import Any

import torch


def separate_copy(model: Any) -> Any:
    """A copy that shares nothing with ``model`` and is not trained."""
    return copy.deepcopy(model).requires_grad_(False)


def rounded_copy(model: Any) -> Any:
    """A copy for inference with linear layers in bfloat16 and all else shared."""
    memo: dict[int, Any] = {id(p): p for p in model.parameters()}
    rounded = copy.deepcopy(model, memo)
    for module in rounded.modules():
        if isinstance(module, torch.nn.Linear):
            for name, parameter in list(module.named_parameters(recurse=False)):
                low = torch.nn.Parameter(parameter.detach().bfloat16(), requires_grad=False)
                setattr(module, name, low)
    return rounded


@torch.no_grad()
def copy_weights(model: Any, copied: Any, everything: bool) -> None:
    """Give ``copied`` the values that ``model`` has now: of linear layers, or of all layers."""
    for source, target in zip(model.modules(), copied.modules(), strict=True):
        if everything or isinstance(source, torch.nn.Linear):
            for name, parameter in source.named_parameters(recurse=False):
                getattr(target, name).copy_(parameter)
