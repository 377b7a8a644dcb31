"""What a pass may change in a model: its buffers and its parameters. A studio file may write to those that are trained
too, as nn.Embedding(max_norm=...) does; others, such as a mean of the trained ones, it does not even train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gradstudio.engine.torch_internals import module_tables


@contextmanager
def state_kept(model: nn.Module) -> Iterator[None]:
    """Bring all of that back at the end, also a buffer that a pass has put another tensor in the place of. A backward
    pass may need what is written to then, so it belongs in here too."""
    tables = [module_tables.buffers(module) for module in nn.Module.modules(model)]
    buffers = [
        (table, name, buffer, buffer.clone())
        for table in tables
        for name, buffer in table.items()
        if buffer is not None
    ]
    parameters = [(weight.detach(), weight.detach().clone()) for weight in nn.Module.parameters(model)]
    try:
        yield
    finally:
        with torch.no_grad():
            for table, name, buffer, value in buffers:
                buffer.copy_(value)
                table[name] = buffer
            for place, value in parameters:
                place.copy_(value)


def gradients_by_backward(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    """Return the gradient of each parameter, None where the loss does not use it, and leave every .grad as it was. Some
    operations, such as checkpoint(use_reentrant=True), work in backward() but not in torch.autograd.grad."""
    before = [parameter.grad for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.grad = None
        loss.backward()
        return [parameter.grad for parameter in parameters]
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
