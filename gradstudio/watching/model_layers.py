"""The layers of somebody's model: which module has the parameters of an optimizer, what they are called in it, and
what each of them is."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradstudio.core.history import Layer

Role = Literal["weight", "recurrent", "bias", "norm"]
_COMPILED = "_orig_mod."  # what torch.compile puts before every name


def of_optimizer(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters that an optimizer holds, in its order."""
    groups = optimizer.param_groups
    return list(groups[0]["params"]) if len(groups) == 1 else [tensor for group in groups for tensor in group["params"]]


def module_with(tensors: Sequence[Tensor]) -> nn.Module | None:
    """Return the smallest module that has all of these parameters; None where no module has. What torch.compile puts
    around a module is taken in its place: compiled code does not call the hooks of the module within."""
    wanted = {id(tensor) for tensor in tensors}
    for objects in _youngest_first():
        found = [each for each in objects if issubclass(type(each), nn.Module) and _has(each, wanted)]
        parts = {id(part): part for each in found for _, part in nn.Module.named_modules(each) if _has(part, wanted)}
        if sizes := [(_size(part), part) for part in parts.values() if _computes(part)]:
            return min(sizes, key=itemgetter(0))[1]
    return None


def _youngest_first() -> Iterator[list[Any]]:
    """Yield the objects that Python holds: first those that are new, among which a new model is, as it takes half of a
    tenth of a second to look at all. What is made around a model is as young as the model or younger."""
    yield gc.get_objects(generation=0)
    yield gc.get_objects(generation=1)
    yield gc.get_objects()


def _has(module: nn.Module, wanted: set[int]) -> bool:
    if "_modules" not in vars(module):
        return False  # being made, or never made to its end
    return wanted <= {id(tensor) for _, tensor in nn.Module.named_parameters(module)}


def _computes(module: nn.Module) -> bool:
    return not issubclass(type(module), (nn.ModuleDict, nn.ModuleList))  # a container computes nothing


def _size(module: nn.Module) -> tuple[int, int, bool]:
    names = [name for name, _ in nn.Module.named_parameters(module)]
    letters = sum(len(name.removeprefix(_COMPILED)) for name in names)
    return len(names), letters, type(module).__name__ != "OptimizedModule"


def schedules_of(optimizer: Optimizer) -> list[LRScheduler]:
    """Return the schedulers that have been made for an optimizer."""
    return [
        found
        for found in gc.get_objects()
        if issubclass(type(found), LRScheduler) and getattr(found, "optimizer", None) is optimizer
    ]


def names(model: nn.Module | None, optimizer: Optimizer | None) -> dict[int, str]:
    """Return the name of each parameter by its id, as the model says, or else the optimizer."""
    found: dict[int, str] = {}
    for index, group in enumerate(optimizer.param_groups if optimizer else ()):
        given = group.get("param_names") or [f"group{index}.{place}" for place in range(len(group["params"]))]
        found |= {id(tensor): str(name) for name, tensor in zip(given, group["params"], strict=False)}
    if model is not None:
        found |= {id(tensor): name for name, tensor in model.named_parameters()}
    return {key: name.replace(_COMPILED, "") for key, name in found.items()}


def described(model: nn.Module | None, named: Sequence[tuple[str, Tensor]]) -> tuple[Layer, ...]:
    """Return a layer for each parameter."""
    owners = {
        id(tensor): (module, name)
        for module in (model.modules() if model is not None else ())
        for name, tensor in module.named_parameters(recurse=False)
    }
    return tuple(
        Layer(name, _role(*owners.get(id(tensor), (None, name)), tensor), tensor.numel()) for name, tensor in named
    )


def _role(module: nn.Module | None, name: str, tensor: Tensor) -> Role:
    """Return what a parameter is, by the type of its module and its own name."""
    last = name.rpartition(".")[2]
    if module is not None and "norm" in type(module).__name__.lower():
        return "norm"
    if last.startswith("weight_hh"):
        return "recurrent"
    return "bias" if "bias" in last or tensor.ndim < 2 else "weight"


def in_forward_order(model: nn.Module | None, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors in the order in which the model names them; those that it does not have come last."""
    if model is None:
        return list(tensors)
    place = {id(tensor): index for index, tensor in enumerate(model.parameters())}
    return sorted(tensors, key=lambda tensor: place.get(id(tensor), len(place)))
