"""Optimizers that another one has for the part of its parameters that this rank updates."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim import Optimizer

_HAS_ONE = "ZeroRedundancyOptimizer"


def is_within(optimizer: Optimizer, others: Iterable[Optimizer | None]) -> bool:
    """Return whether an optimizer makes the updates of one of the others, and is no training of its own."""
    outer = [other for other in others if any(kind.__name__ == _HAS_ONE for kind in type(other).__mro__)]
    if not outer or optimizer in outer:
        return False
    own = _ids(optimizer)
    return any(own <= _ids(other) for other in outer if other is not None)


def _ids(optimizer: Optimizer) -> set[int]:
    return {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
