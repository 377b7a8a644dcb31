"""Freezing: a forward pass whose gradient goes through a part and leaves its parameters alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen(part: nn.Module) -> Iterator[None]:
    """What is computed in here is differentiable in its inputs, not in the parameters of `part`."""
    parameters = [parameter for parameter in part.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def is_frozen(part: nn.Module) -> bool:
    return not any(parameter.requires_grad for parameter in part.parameters())
