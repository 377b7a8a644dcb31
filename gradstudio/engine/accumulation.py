"""Micro-batches: gradients add up in .grad over several backward passes. Here is what counts and reads them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import Parameter

from gradstudio.engine import foreach, gradients


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
