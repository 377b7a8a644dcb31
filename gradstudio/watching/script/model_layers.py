"""The layers of a user's model: which module has the parameters of an optimizer, their names in it, and their roles."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, Literal, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradstudio.core.row import Layer
from gradstudio.watching.script.living_objects import living_objects
from gradstudio.watching.script.script_names import name_of

Role = Literal["weight", "recurrent", "embedding", "bias", "norm"]
_COMPILED = "_orig_mod."  # the prefix that torch.compile adds to every name
_SHARDED = "_fsdp_wrapped_module."  # that of FullyShardedDataParallel


def of_optimizer(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer, in its order."""
    groups = optimizer.param_groups
    return list(groups[0]["params"]) if len(groups) == 1 else [tensor for group in groups for tensor in group["params"]]


class ModelLike(Protocol):
    """The interface of a model, or of several that are treated as one."""

    def modules(self) -> Iterator[nn.Module]: ...
    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...


class Together:
    """Several models that one optimizer trains, as parts of one, with their names as prefixes of their parameters."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        self._parts = parts

    def modules(self) -> Iterator[nn.Module]:
        return chain.from_iterable(part.modules() for part in self._parts.values())

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for name, part in self._parts.items():
            for own, tensor in part.named_parameters():
                yield f"{name}.{own}", tensor


def together(models: Sequence[nn.Module]) -> ModelLike:
    """Return several models as one; a single one as it is."""
    return models[0] if len(models) == 1 else Together(dict(zip(names_of(models), models, strict=True)))


def names_of(models: Sequence[nn.Module]) -> list[str]:
    """Return the script's names for the models, or else their class names; a repeated one becomes Linear_2 and so
    on."""
    names = [name_of(model).rpartition(".")[2] or type(model).__name__ for model in models]
    numbers = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{name}_{before + 1}" if before else name for name, before in zip(names, numbers, strict=True)]


def models_of(tensors: Sequence[Tensor]) -> list[list[nn.Module]]:
    """Return the models that have these parameters: one if a single module has them all, otherwise the largest modules
    with no other trainable parameters; [] if no module has any. Each model comes first, followed by the modules around
    it that have the same parameters: the script may call any of them."""
    if (modules := modules_with(tensors)) or not tensors:
        return [modules] if modules else []
    place = {id(tensor): place for place, tensor in enumerate(tensors)}
    parts: dict[tuple[int, ...], list[nn.Module]] = {}
    for each in living_objects(nn.Module):
        if "_modules" in vars(each) and _computes(each):
            own = [id(tensor) for tensor in nn.Module.parameters(each) if tensor.requires_grad]
            if own and place.keys() >= set(own):
                parts.setdefault(tuple(sorted(map(place.__getitem__, own))), []).append(each)
    models: dict[int, list[nn.Module]] = {}  # by the index of the first parameter
    taken: set[int] = set()
    for own in sorted(parts, key=len, reverse=True):
        if taken.isdisjoint(own):
            taken.update(own)
            models[own[0]] = _without_compiled(parts[own])
    return [models[first] for first in sorted(models)]


def modules_with(tensors: Sequence[Tensor]) -> list[nn.Module]:
    """Return the smallest module that has all of these parameters, followed by those around it that have no others; []
    if no module has them. The wrapper of torch.compile replaces the module inside: compiled code does not call its
    hooks."""
    wanted = {id(tensor) for tensor in tensors}
    for objects in _youngest_first():
        modules = [each for each in living_objects(nn.Module, objects) if _has(each, wanted)]
        parts = {id(part): part for each in modules for _, part in nn.Module.named_modules(each) if _has(part, wanted)}
        if parts := [part for part in parts.values() if _computes(part)]:
            least = min(len(list(nn.Module.parameters(part))) for part in parts)
            return _without_compiled([part for part in parts if len(list(nn.Module.parameters(part))) == least])
    return []


def _without_compiled(modules: list[nn.Module]) -> list[nn.Module]:
    """Return modules that have the same parameters, the smallest first, without those that are compiled within another
    of them."""
    compiled = [each for each in modules if _is_compiled(each)]
    within = {id(part) for each in compiled for part in nn.Module.modules(each) if part is not each}
    return sorted((each for each in modules if id(each) not in within), key=_letters)


def _is_compiled(module: nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule"


def _youngest_first() -> Iterator[list[Any]]:
    """Yield all Python objects: first the new ones, among which a new model is, as visiting all takes about half of a
    tenth of a second. A wrapper of a model is as young as the model or younger."""
    yield gc.get_objects(generation=0)
    yield gc.get_objects(generation=1)
    yield gc.get_objects()


def _has(module: nn.Module, wanted: set[int]) -> bool:
    if "_modules" not in vars(module):
        return False  # under construction, or never completed
    return wanted <= {id(tensor) for _, tensor in nn.Module.named_parameters(module)}


def _computes(module: nn.Module) -> bool:
    return not issubclass(type(module), (nn.ModuleDict, nn.ModuleList))  # a container computes nothing


def _letters(module: nn.Module) -> tuple[int, bool]:
    """Return the length of the parameters' names, which grow with the wrappers of a module."""
    names = [name.removeprefix(_COMPILED) for name, _ in nn.Module.named_parameters(module)]
    return sum(map(len, names)), not _is_compiled(module)


def schedules_of(optimizer: Optimizer) -> list[LRScheduler]:
    """Return the schedulers of an optimizer. Each has put its own method `step` on it; searching all Python objects
    takes a tenth of a second."""
    if "step" not in vars(optimizer):
        return []
    return [each for each in living_objects(LRScheduler) if getattr(each, "optimizer", None) is optimizer]


def names(model: ModelLike, optimizer: Optimizer | None) -> dict[int, str]:
    """Return the name of each parameter by its id, from the model, or else from the optimizer."""
    by_id: dict[int, str] = {}
    for index, group in enumerate(optimizer.param_groups if optimizer else ()):
        given = group.get("param_names") or [f"group{index}.{place}" for place in range(len(group["params"]))]
        by_id |= {id(tensor): str(name) for name, tensor in zip(given, group["params"], strict=False)}
    by_id |= {id(tensor): name for name, tensor in model.named_parameters()}
    return {key: name.replace(_COMPILED, "").replace(_SHARDED, "") for key, name in by_id.items()}


def layers_of(
    model: ModelLike, named: Sequence[tuple[str, Tensor]], shapes: Sequence[tuple[int, ...]]
) -> tuple[Layer, ...]:
    """Return a layer for each parameter, with its shape in the whole model."""
    owners = {
        id(tensor): (module, name)
        for module in model.modules()
        for name, tensor in module.named_parameters(recurse=False)
    }
    return tuple(
        Layer(name, _role(*owners.get(id(tensor), (None, name)), len(shape)), prod(shape))
        for (name, tensor), shape in zip(named, shapes, strict=True)
    )


def _role(module: nn.Module | None, name: str, dimensions: int) -> Role:
    """Return the role of a parameter, from the type of its module and its own name."""
    last = name.rpartition(".")[2]
    if module is not None and "norm" in type(module).__name__.lower():
        return "norm"
    if last.startswith("weight_hh"):
        return "recurrent"
    if "bias" in last or (dimensions < 2 and last != "_flat_param"):
        return "bias"
    return "embedding" if "embed" in f"{type(module).__name__} {last}".lower() else "weight"


def in_forward_order(model: ModelLike, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors in the order in which the model names them; those that it does not have come last."""
    place = {id(tensor): index for index, (_, tensor) in enumerate(model.named_parameters())}
    return sorted(tensors, key=lambda tensor: place.get(id(tensor), len(place)))
