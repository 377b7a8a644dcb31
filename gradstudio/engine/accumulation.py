"""Micro-batches: gradients add up in .grad over several backward passes. Here is what counts, reads and checks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from gradstudio.engine import gauges
from gradstudio.engine.models.batch_norms import statistics_kept
from gradstudio.engine.tasks.task import Batch


def kept(micro_batches: int) -> int:
    """How many are left where the second half is dropped; the first always stays."""
    return micro_batches - micro_batches // 2


def means(passes: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The loss and the accuracy of a step, from the loss, the accuracy and the largest absolute output of each of its passes. The accuracy is
    NaN where an output is not finite."""
    losses = [loss for loss, _, _ in passes]
    loss = losses[0] if len(losses) == 1 else torch.tensor(losses, dtype=torch.float64).mean().item()
    return loss, sum(right if math.isfinite(largest) else math.nan for _, right, largest in passes) / len(passes)


class UnclippedSum:
    """The sum of micro-batch gradients as it would be if nobody had clipped it in between: only for showing its norm. `gradients` is
    the flat tensor that backward passes add to, and so is `sum`."""

    def __init__(self, gradients: Tensor) -> None:
        self._gradients = gradients
        self._held = torch.empty_like(gradients)
        self.sum = gradients.clone()

    def set_aside(self) -> None:
        """Before a backward pass: so that it leaves the gradient of one micro-batch."""
        self._held.copy_(self._gradients)
        self._gradients.zero_()

    def put_back(self) -> None:
        """After it: add the new gradient to the sum and to what was set aside, the way backward() itself adds."""
        self.sum.add_(self._gradients)
        self._gradients.add_(self._held)


def joined(batches: Sequence[Batch]) -> Batch:
    """The micro-batches as the one large batch that they stand for."""
    return Batch(torch.cat([batch.inputs for batch in batches]), torch.cat([batch.targets for batch in batches]))


def joined_gradient(model: nn.Module, parameters: Sequence[Parameter], batch: Batch, loss: Callable[[Batch], Tensor]) -> list[Tensor]:
    """The gradient of `loss` of one large batch, without a trace: .grad and the running statistics of batch norms stay as they are."""
    with statistics_kept(model):
        value = loss(batch)
    grads = torch.autograd.grad(value, parameters, allow_unused=True)
    return [torch.zeros_like(parameter) if grad is None else grad for parameter, grad in zip(parameters, grads, strict=True)]


def summed_gradient(model: nn.Module, parameters: Sequence[Parameter], batches: Sequence[Batch], loss: Callable[[Batch], Tensor]) -> list[Tensor]:
    """The gradient of the sum of each micro-batch's `loss`, one after the other, without a trace."""
    total = joined_gradient(model, parameters, batches[0], loss)
    for batch in batches[1:]:
        for added, grad in zip(total, joined_gradient(model, parameters, batch, loss), strict=True):
            added += grad
    return total


def difference(grads: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """Norm of grads - reference / norm of reference, in float64. About 1e-7 is the rounding of float32."""
    one, other = (torch.cat([grad.flatten() for grad in each]).cpu().double() for each in (grads, reference))
    return float(gauges.ratio((one - other).norm().item(), other.norm().item()))
