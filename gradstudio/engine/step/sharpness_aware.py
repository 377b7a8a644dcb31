"""Sharpness-aware minimization: the gradient that updates the weights is taken where the loss is higher (Foret 2021,
arXiv 2010.01412, equations 2 and 3). The two times that a step makes its passes are in engine/trainer.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.torch_internals import tensor_lists

EPS = 1e-12  # added to the norm, so that a gradient of 0 moves nothing


def perturb(flat: Flat, rho: float) -> None:
    """Add rho g / |g| to the weights, with the common norm of all gradients, summed in float32. A loss scale in g
    divides itself out. A gradient that is not finite makes weights that are not, and so a second gradient that is
    not."""
    norm = torch.linalg.vector_norm(tensor_lists.norms(flat.grads))
    flat.weights.add_(flat.gradients * (rho / (norm + EPS)))


class Origin:
    """Where the weights were before they were moved, and what the passes there changed in the model's buffers: a
    batch norm takes its running statistics from the passes at the origin alone. `weights` is a flat tensor to keep
    them in."""

    def __init__(self, flat: Flat, model: nn.Module, weights: Tensor) -> None:
        self._flat, self._weights = flat, weights.copy_(flat.weights)
        self._buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]

    def restore(self) -> None:
        """Bring weights and buffers back, to the last bit."""
        self._flat.weights.data.copy_(self._weights)
        for buffer, value in self._buffers:
            buffer.copy_(value)
