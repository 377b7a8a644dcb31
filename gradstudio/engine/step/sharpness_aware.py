"""Sharpness-aware minimization: the gradient that updates the weights is computed at nearby weights with a higher loss
(Foret 2021, arXiv 2010.01412, equations 2 and 3). The two gradients of a step are computed in engine/trainer.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.torch_internals import tensor_lists

EPS = 1e-12  # added to the norm, so that a gradient of 0 moves nothing


def perturb(flat: Flat, rho: float) -> None:
    """Add rho g / |g| to the weights, with the common norm of all gradients, summed in float32. A loss scale in g
    cancels out. A non-finite gradient makes non-finite weights, and so a non-finite second gradient."""
    norm = torch.linalg.vector_norm(tensor_lists.norms(flat.grads))
    flat.weights.add_(flat.gradients * (rho / (norm + EPS)))


class Origin:
    """The weights before they were moved, and the model's buffers that the passes there changed: a batch norm takes its
    running statistics from the passes at the origin alone. `weights` is a flat tensor to store them in."""

    def __init__(self, flat: Flat, model: nn.Module, weights: Tensor) -> None:
        self._flat, self._weights = flat, weights.copy_(flat.weights)
        self._buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]

    def restore(self) -> None:
        """Restore weights and buffers, to the last bit."""
        self._flat.weights.data.copy_(self._weights)
        for buffer, value in self._buffers:
            buffer.copy_(value)
