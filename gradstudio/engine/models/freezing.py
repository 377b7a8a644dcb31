"""Freezing: the gradient of a forward pass goes through a part and leaves its parameters alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen(part: nn.Module) -> Iterator[None]:
    """Make what is computed in here differentiable in its inputs, not in the parameters of `part`."""
    parameters = [parameter for parameter in part.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def is_frozen(part: nn.Module) -> bool:
    """Return whether no parameter of the part gets a gradient."""
    return not any(parameter.requires_grad for parameter in part.parameters())
