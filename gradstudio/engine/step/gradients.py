"""Changes of the gradients, in place, before they are clipped."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gradstudio.engine.devices import to_device


def centralize(grads: Iterable[Tensor]) -> None:
    """Subtract the mean of each row from a gradient (outputs, inputs...) (Yong 2020, arXiv 2004.01461). Vectors are
    unchanged."""
    for grad in grads:
        if grad.ndim > 1:
            grad.sub_(grad.mean(dim=tuple(range(1, grad.ndim)), keepdim=True))


def add_noise(grads: Iterable[Tensor], deviation: float, source: torch.Generator) -> None:
    """Add Gaussian noise to every entry (Neelakantan 2015). `source` is on the CPU, wherever the gradients are."""
    for grad in grads:
        grad.add_(to_device(torch.randn(grad.shape, generator=source), str(grad.device)), alpha=deviation)
