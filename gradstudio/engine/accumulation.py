"""Micro-batches: gradients add up in .grad over several backward passes. Here is what counts, reads and checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from gradstudio.engine import foreach, gauges, gradients
from gradstudio.engine.models.batch_norms import statistics_kept
from gradstudio.engine.tasks.task import Batch


def kept(micro_batches: int) -> int:
    """How many are left where the second half is dropped; the first always stays."""
    return micro_batches - micro_batches // 2


class UnclippedSum:
    """The sum of micro-batch gradients as it would be if nobody had clipped it in between: only for showing its norm."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = list(parameters)
        self._held: list[Tensor | None] = []
        self.sum = [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone() for parameter in self._parameters]

    def set_aside(self) -> None:
        """Before a backward pass: take .grad away, so that the pass leaves the gradient of one micro-batch there."""
        self._held = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None

    def put_back(self) -> None:
        """After it: add the new gradient to the sum and to what was set aside, the way backward() itself adds."""
        grads = gradients.of(self._parameters)
        foreach.add_(self.sum, grads)
        for parameter, held, grad in zip(self._parameters, self._held, grads, strict=True):
            if held is not None:
                parameter.grad = held.add_(grad)


def joined(batches: Sequence[Batch]) -> Batch:
    """The micro-batches as the one large batch that they stand for."""
    return Batch(torch.cat([batch.inputs for batch in batches]), torch.cat([batch.targets for batch in batches]))


def joined_gradient(model: nn.Module, parameters: Sequence[Parameter], batch: Batch, loss: Callable[[Batch], Tensor]) -> list[Tensor]:
    """The gradient of `loss` of one large batch, without a trace: .grad and the running statistics of batch norms stay as they are."""
    with statistics_kept(model):
        value = loss(batch)
    grads = torch.autograd.grad(value, parameters, allow_unused=True)
    return [torch.zeros_like(parameter) if grad is None else grad for parameter, grad in zip(parameters, grads, strict=True)]


def difference(grads: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """Norm of grads - reference / norm of reference, in float64. About 1e-7 is the rounding of float32."""
    with torch.no_grad():
        return float(gauges.ratio(gauges.norm([grad - other for grad, other in zip(grads, reference, strict=True)]), gauges.norm(reference)))
