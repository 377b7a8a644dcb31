"""Whether a model still has the parameters that were built, with their memory and their gradients. The optimizer refers
to those: one that replaces another, or is added, would never be trained, without any sign of it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.text import plural
from gradstudio.engine.torch_internals.autograd_nodes import version_of
from gradstudio.engine.torch_internals.module_tables import buffers, own_tables

_WANTED = "wanted: the parameters that build_model made, changed in place under torch.no_grad()"

Kinds = list[tuple[torch.Size, torch.dtype]]


class Places(NamedTuple):
    """The address of each trained parameter, its gradient, and a number that changes whenever torch writes to a
    gradient. A single number suffices for all: they are views of one tensor (passes/flat.py)."""

    addresses: list[int]
    gradients: list[Tensor | None]
    version: int


class Structure:
    """The parameters and the buffers of a model, as they were when it was built."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        named = _trained_parameters(model)
        self._trained = [weight for _, weight in named]
        self._built = {id(weight): name for name, weight in named}
        self._buffers = _buffers_of(model)
        self._remember()
        self._kinds_of_others = _kinds(self._others)

    def _remember(self) -> None:
        """Remember the contents of each module, so that a check at every pass costs little compared with the pass."""
        modules = list(nn.Module.modules(self._model))
        self._held = [(table, tuple(table.values())) for module in modules for table in own_tables(module)]
        self._weights = list(nn.Module.parameters(self._model))
        self._require = [weight.requires_grad for weight in self._weights]
        self._others = [weight for weight in self._weights if id(weight) not in self._built]  # the untrained ones

    def places(self) -> Places:
        """Return the current places of the parameters, for `changed` after a pass."""
        gradients = [weight.grad for weight in self._trained]
        first = next((gradient for gradient in gradients if gradient is not None), None)
        version = -1 if first is None else version_of(first)
        return Places(list(map(Tensor.data_ptr, self._trained)), gradients, version)

    def describe_changes(self, before: Places) -> str:
        """Return what happened to the parameters, their memory or their gradients since `before`, or to the buffers and
        untrained parameters, which a rewind restores one by one, in words; "" while all are those that were built."""
        after = self.places()
        if after.addresses != before.addresses:
            pairs = zip(self._built.values(), after.addresses, before.addresses, strict=True)
            name = next(name for name, now, then in pairs if now != then)
            return f"{name} has other memory than before, which the optimizer does not hold; {_WANTED}"
        if after.version != before.version or not all(map(is_, after.gradients, before.gradients)):
            return "the gradients were changed, as by backward() or zero_grad(); wanted: the loss alone"
        if (buffers_now := _buffers_of(self._model)) != self._buffers:
            text = _difference("buffer", "buffers", self._buffers, buffers_now)
            return f"{text}; wanted: each one registered as a tensor in build_model"
        if text := self._others_changed():
            return text
        if self._require == [weight.requires_grad for weight in self._weights] and all(map(_holds, self._held)):
            return ""
        now = _trained_parameters(self._model)
        ids, names = {id(weight) for _, weight in now}, set(self._built.values())
        new = next((name for name, weight in now if id(weight) not in self._built), "")
        if new in names:
            return f"{new} is another parameter than the one that was built, which the optimizer holds; {_WANTED}"
        if new:
            return f"{new} came to be a parameter that requires a gradient, and no optimizer holds it; {_WANTED}"
        weights = {id(weight) for weight in nn.Module.parameters(self._model)}
        if gone := next((name for place, name in self._built.items() if place not in ids | weights), ""):
            return f"{gone} is no parameter of the model any more, and the optimizer still holds it; {_WANTED}"
        self._remember()  # other names for the same parameters, or one that was frozen
        return self._others_changed()

    def _others_changed(self) -> str:
        if (now := _kinds(self._others)) == self._kinds_of_others:
            return ""
        one, several = "parameter that is not trained", "parameters that are not trained"
        return f"{_difference(one, several, self._kinds_of_others, now)}; wanted: each one made in build_model"


def _buffers_of(model: nn.Module) -> Kinds:
    tables = [buffers(module) for module in nn.Module.modules(model)]
    return _kinds([value for table in tables for value in table.values() if value is not None])


def _kinds(tensors: Sequence[Tensor]) -> Kinds:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _difference(one: str, several: str, built: Kinds, now: Kinds) -> str:
    if len(built) != len(now):
        return f"the model has {plural(len(now), one, several)} now, and {len(built)} when it was built"
    was, now_value = next((was, now_value) for was, now_value in zip(built, now, strict=True) if was != now_value)
    return f"a {one} is {_in_words(*now_value)} now, and {_in_words(*was)} when it was built"


def _in_words(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)}"


def _trained_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, weight) for name, weight in nn.Module.named_parameters(model) if weight.requires_grad]


def _holds(held: tuple[dict[str, Any], tuple[Any, ...]]) -> bool:
    table, before = held
    return len(table) == len(before) and all(map(is_, table.values(), before))
