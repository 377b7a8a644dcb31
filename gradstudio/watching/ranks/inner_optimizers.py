"""Optimizers inside another one, for the part of its parameters that this rank updates."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim import Optimizer

from gradstudio.watching.script.model_layers import of_optimizer

_HAS_ONE = "ZeroRedundancyOptimizer"


def is_within(optimizer: Optimizer, others: Iterable[Optimizer | None]) -> bool:
    """Return whether an optimizer makes the updates of one of the others, and is no training of its own."""
    outer = [other for other in others if any(kind.__name__ == _HAS_ONE for kind in type(other).__mro__)]
    if not outer or optimizer in outer:
        return False
    own = set(map(id, of_optimizer(optimizer)))
    return any(own.issubset(map(id, of_optimizer(other))) for other in outer if other is not None)
