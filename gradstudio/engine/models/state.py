"""What a pass may change in a model beside the parameters that are trained: its buffers, and the parameters that do not
require a gradient, such as those of a studio file that follow the others as their mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

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
    frozen = [(weight.data, weight.clone()) for weight in nn.Module.parameters(model) if not weight.requires_grad]
    try:
        yield
    finally:
        with torch.no_grad():
            for table, name, buffer, value in buffers:
                buffer.copy_(value)
                table[name] = buffer
            for weight, value in frozen:
                weight.copy_(value)
