"""Micro-batches: their gradients add up in .grad over several backward passes. Here are the correct sum, and the
distance between two gradients. checks.py runs them for *Compare with large batch*."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.gauges.every_step import ratio
from gradstudio.engine.models.state import preserve_state
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.tasks.task import Batch


def remaining_micro_batches(micro_batches: int) -> int:
    """Return how many micro-batches remain if the second half is dropped; the first one always stays."""
    return micro_batches - micro_batches // 2


def means(passes: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the loss and the accuracy of a step. Each pass contributes its loss, its accuracy, its largest absolute
    output, and perhaps more. The accuracy is NaN if an output is non-finite."""
    loss = mean_loss([each[0] for each in passes])
    return loss, sum(each[1] if math.isfinite(each[2]) else math.nan for each in passes) / len(passes)


def policy_figures(passes: Sequence[Sequence[float]]) -> tuple[float, float, float, float]:
    """Return the largest ratio of a policy in the passes of a step, and the means of its KL divergence, its entropy and
    its reward; all UNKNOWN where no model acts."""
    if len(passes[0]) == 3:
        return UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
    ratios, *others = (np.array(each) for each in zip(*(each[3:] for each in passes), strict=True))
    return float(ratios.max()), *(float(each.mean()) for each in others)  # type: ignore[return-value]


def mean_loss(losses: Sequence[float]) -> float:
    """Return the loss of a step from those of its passes."""
    return losses[0] if len(losses) == 1 else torch.tensor(losses, dtype=torch.float64).mean().item()


class UnclippedSum:
    """The sum of the micro-batch gradients as it would be if none of them had been clipped. `sum` is a flat tensor,
    like flat.gradients."""

    def __init__(self, flat: Flat) -> None:
        self._flat = flat
        self._held = torch.empty_like(flat.gradients)
        self.sum = flat.gradients.clone()

    def set_aside(self) -> None:
        """Set the gradients aside before a backward pass, so that it leaves those of one micro-batch."""
        if self._flat.cleared:
            self.sum.zero_()
        self._held.copy_(self._flat.gradients)
        self._flat.gradients.zero_()

    def put_back(self, clip: Callable[[], None] | None = None) -> None:
        """Add the new gradients to the sum, and clipped, if asked to, to those that were set aside."""
        self.sum.add_(self._flat.gradients)
        if clip is not None:
            clip()
        self._flat.gradients.add_(self._held)


def join(batches: Sequence[Batch]) -> Batch:
    """Return the micro-batches as the one large batch that they represent."""
    return Batch(torch.cat([batch.inputs for batch in batches]), torch.cat([batch.targets for batch in batches]))


def gradient_of(
    model: nn.Module, parameters: Sequence[Parameter], batch: Any, loss: Callable[[Any], Tensor]
) -> list[Tensor]:
    """Return the gradient of `loss` for one batch, without a trace: .grad and the model's state are unchanged."""
    return summed_gradient(model, parameters, [batch], loss)


def plain_gradients(loss: Tensor, parameters: Sequence[Parameter]) -> Sequence[Tensor | None]:
    """Return the gradient of each parameter, None if the loss does not use it. No .grad is changed."""
    return torch.autograd.grad(loss, parameters, allow_unused=True)


def summed_gradient(
    model: nn.Module, parameters: Sequence[Parameter], batches: Sequence[Any], loss: Callable[[Any], Tensor],
    gradients: Callable[[Tensor, Sequence[Parameter]], Sequence[Tensor | None]] = plain_gradients,
) -> list[Tensor]:  # fmt: skip
    """Return the sum of the gradients of each micro-batch's `loss`, computed one after the other, without a trace. Each
    pass begins with the state of the model that the previous one has left. A sparse gradient is made dense, like .grad.
    """
    with preserve_state(model):
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for batch in batches:
            grads = gradients(loss(batch), parameters)
            for added, grad in zip(total, grads, strict=True):
                if grad is not None:
                    added += grad
    return total


def difference(grads: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """Return the norm of grads - reference / the norm of reference, in float64. The rounding of float32 alone causes
    about 1e-7."""
    one, other = (torch.cat([grad.flatten() for grad in each]).cpu().double() for each in (grads, reference))
    return float(ratio((one - other).norm().item(), other.norm().item()))
