"""Batch norms: forward passes that leave their running mean and variance unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def freeze_statistics(part: nn.Module) -> Iterator[None]:
    """Let forward passes in this context normalize by their batch, as in training, without updating the running
    statistics."""
    norms = [module for module in part.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    before = [(norm.momentum, norm.get_buffer("num_batches_tracked").clone()) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum = momentum
            norm.get_buffer("num_batches_tracked").copy_(count)
