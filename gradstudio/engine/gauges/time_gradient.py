"""How much of the gradient reaches the first time step of a sequence, for a network that answers after the last one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradstudio.engine.models.state import preserve_state

EXAMPLES = 8  # of a batch: the time of a look goes into the time steps, not into the examples


def look(model: nn.Module, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> float:
    """Return the norm of the loss's gradient by the inputs of the first time step / that by those of the last. It is 1
    if both matter alike (Pascanu 2013, section 2); `inputs` are (examples, time steps, features)."""
    leaf = inputs.detach().clone().requires_grad_(True)
    with torch.enable_grad(), preserve_state(model):
        norms = torch.autograd.grad(loss(leaf), leaf)[0].double().norm(dim=(0, 2))
    return (norms[0] / norms[-1]).item()
