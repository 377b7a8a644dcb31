"""What a pass may change in a model: its buffers, its parameters, and its modules' own counters. A studio file may also
write to trained parameters, as nn.Embedding(max_norm=...) does; others, such as a running mean of the trained ones, are
not trained at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.engine.torch_internals import module_tables

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restore all of that at the end, including a buffer that a pass has replaced by another tensor. A backward pass
    may need what is overwritten then, so it belongs into the context too."""
    tables = [module_tables.buffers(module) for module in nn.Module.modules(model)]
    buffers = [
        (table, name, buffer, buffer.clone())
        for table in tables
        for name, buffer in table.items()
        if buffer is not None
    ]
    parameters = [(weight.detach(), weight.detach().clone()) for weight in nn.Module.parameters(model)]
    attributes = [(vars(module), _plain(module)) for module in nn.Module.modules(model)]
    try:
        yield
    finally:
        with torch.no_grad():
            for table, name, buffer, value in buffers:
                buffer.copy_(value)
                table[name] = buffer
            for place, value in parameters:
                place.copy_(value)
        for table, plain in attributes:
            # a former value would hide what has become a parameter, a buffer or a module meanwhile
            table.update({name: value for name, value in plain.items() if name in table})


def _plain(module: nn.Module) -> dict[str, Any]:
    """Return the numbers and texts that a module keeps besides its tensors, such as counters."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, (bool, int, float, str, type(None))) and name not in _OF_EVERY_MODULE
    }


def gradients_by_backward(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    """Return the gradient of each parameter, None if the loss does not use it, and leave every .grad unchanged. Some
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
