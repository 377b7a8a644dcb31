"""Optimizers of one model: several, or one inside another, for the part of its parameters that this rank updates."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim import Optimizer

from gradstudio.watching.measuring.sharded_parameters import are_sharded
from gradstudio.watching.script.living_objects import living_objects
from gradstudio.watching.script.model_layers import of_optimizer

_HAS_ONE = "ZeroRedundancyOptimizer"


def is_within(optimizer: Optimizer, others: Iterable[Optimizer | None]) -> bool:
    """Return whether an optimizer makes the updates of one of the others, and is no training of its own."""
    outer = [other for other in others if any(kind.__name__ == _HAS_ONE for kind in type(other).__mro__)]
    if not outer or optimizer in outer:
        return False
    own = set(map(id, of_optimizer(optimizer)))
    return any(own.issubset(map(id, of_optimizer(other))) for other in outer if other is not None)


def optimizers_of(model: nn.Module) -> list[Optimizer]:
    """Return the existing optimizers if several share a model's parameters, or if these are shards; [] if some overlap,
    as the script may have discarded one of them."""
    own = list(model.parameters())
    ids, made = set(map(id, own)), [each for each in living_objects(Optimizer) if "param_groups" in vars(each)]
    among = [each for each in made if not is_within(each, made)]
    held = {id(each): [id(tensor) for tensor in of_optimizer(each)] for each in among}
    among = [each for each in among if not ids.isdisjoint(held[id(each)])]
    every = [tensor for each in among for tensor in held[id(each)]]
    is_needed = len(among) > 1 or are_sharded(own)
    return among if is_needed and len(every) == len(set(every)) else []
