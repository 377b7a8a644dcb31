"""Whether a trained parameter shares its memory with another tensor of a studio file. A trainer lays these parameters
out anew (passes/flat.py), which would silently separate the two: an update would no longer reach the other one, as it
does in the file's own program."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.engine.torch_internals.module_tables import own_attributes

_DEEPEST = 4  # nested lists of an attribute


class _Place(NamedTuple):
    """The memory of a tensor, from the address `start` to `stop`."""

    start: int
    stop: int
    name: str


def find_shared(model: nn.Module, variables: Mapping[str, Any]) -> str:
    """Return a trained parameter and what shares its memory, in words; "" if nothing does. Checks everything that the
    model refers to and the global `variables` of the file. The same parameter under two names does not count."""
    named = list(nn.Module.named_parameters(model))
    trained = sorted(_places((name, weight) for name, weight in named if weight.requires_grad))
    for before, after in pairwise(trained):
        if after.start < before.stop:
            return f"{before.name} and {after.name}"
    parameters = {id(weight) for _, weight in named}
    others = [(f"the parameter {name}, which is not trained,", each) for name, each in named if not each.requires_grad]
    others += [(f"the buffer {name}", each) for name, each in nn.Module.named_buffers(model)]
    others += [attribute for attribute in _attributes(model, variables) if id(attribute[1]) not in parameters]
    for other in _places(others):
        # the last one that begins before the end of the other; they are sorted, and do not overlap
        index = bisect_left(trained, other.stop, key=itemgetter(0)) - 1
        if index >= 0 and trained[index].stop > other.start:
            return f"{trained[index].name} and {other.name}"
    return ""


def _places(tensors: Any) -> Iterator[_Place]:
    for name, tensor in tensors:
        if tensor.layout != torch.strided or tensor.is_nested or not tensor.numel():
            continue
        if start := tensor.data_ptr():  # an address of 0 means a tensor that only counts memory and has no numbers
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            yield _Place(start, start + (last + 1) * tensor.element_size(), name)


def _attributes(model: nn.Module, variables: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for path, module in nn.Module.named_modules(model):
        own = {name for name, _ in nn.Module.named_parameters(module, recurse=False)}
        for name, value in own_attributes(module).items():
            if f"{name}_orig" not in own:  # torch.nn.utils.spectral_norm recreates it in each pass
                yield from _tensors(f"the attribute {path}{'.' if path else ''}{name}", value)
    for name, value in variables.items():
        yield from _tensors(f"the global variable {name}", value)


def _tensors(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, nn.Module):  # which the model does not register, such as one in a list
        yield from ((name, tensor) for tensor in (*nn.Module.parameters(value), *nn.Module.buffers(value)))
    elif isinstance(value, (dict, list, tuple, set)) and depth < _DEEPEST:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(name, part, depth + 1)
