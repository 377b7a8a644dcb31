"""Freezing: the gradient of a forward pass flows through a part but does not reach its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen(part: nn.Module) -> Iterator[None]:
    """Make computations in this context differentiable with respect to their inputs, not to the parameters of
    `part`."""
    parameters = [parameter for parameter in part.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def is_frozen(part: nn.Module) -> bool:
    """Return whether none of the part's parameters gets a gradient."""
    return not any(parameter.requires_grad for parameter in part.parameters())
