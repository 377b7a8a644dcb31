"""Activation checkpointing: forget what a part computed, compute it again for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def checkpointed(part: nn.Module, inputs: Tensor) -> Tensor:
    """part(inputs), with the same numbers and less memory. Nothing in a part may draw random numbers."""
    return checkpoint(part, inputs, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: _contexts(part))


def _contexts(part: nn.Module) -> tuple[AbstractContextManager, AbstractContextManager]:
    return nullcontext(), _statistics_kept(part)


@contextmanager
def _statistics_kept(part: nn.Module) -> Iterator[None]:
    """The second pass must not move the running mean and variance of a batch norm a second time."""
    norms = [(module, module.momentum) for module in part.modules() if isinstance(module, nn.BatchNorm1d)]
    for norm, _ in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in norms:
            norm.momentum = momentum
