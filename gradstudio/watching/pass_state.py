"""What a forward pass of somebody's model depends on besides its inputs, weights and torch's random numbers: what the
pass itself changes, such as `self.calls += 1`, and the random numbers of Python and numpy where it draws them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

LOOKS = 3  # passes that are looked at whole; after them only what has changed in one of them is kept
_PLAIN = (int, float, bool, str, type(None))
_MISSING = object()
_Attribute = tuple[dict[str, Any], str]  # the table of a module that it stands in, and its name


class PassState(NamedTuple):
    """How a pass began: attributes with their values, and the states of random numbers, None where none are drawn."""

    attributes: list[tuple[_Attribute, Any]]
    python: Any
    numpy: Any

    def put_back(self) -> None:
        """Let the pass begin with the same again."""
        for (table, name), value in self.attributes:
            if value is _MISSING:
                table.pop(name, None)
            else:
                table[name] = value.clone() if isinstance(value, Tensor) else value
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            np.random.set_state(self.numpy)


class PassStates:
    """Keeps the state of each pass. A model that changes nothing of the kind costs nothing after the first passes."""

    def __init__(self) -> None:
        self._looks = LOOKS
        self._changed: dict[tuple[int, str], _Attribute] = {}
        self._python = self._numpy = False

    def before(self, model: nn.Module) -> PassState:
        """Return the state in which a pass begins."""
        if self._looks:
            return PassState(list(_attributes(model)), random.getstate(), np.random.get_state())
        return PassState(
            [(place, _value(place)) for place in self._changed.values()],
            random.getstate() if self._python else None,
            np.random.get_state() if self._numpy else None,
        )

    def after(self, model: nn.Module, began: PassState) -> None:
        """Learn from one of the first passes what a pass changes."""
        if not self._looks:
            return
        self._looks -= 1
        before = {_key(place): value for place, value in began.attributes}
        for place, value in _attributes(model):
            if not _same(before.get(_key(place), _MISSING), value):
                self._changed[_key(place)] = place
        self._python = self._python or random.getstate() != began.python
        self._numpy = self._numpy or not all(map(np.array_equal, np.random.get_state(), began.numpy))


def _attributes(model: nn.Module) -> Iterator[tuple[_Attribute, Any]]:
    """Yield the numbers, texts and tensors of one number that a person's own modules have as attributes or buffers."""
    for module in model.modules():
        if not type(module).__module__.startswith("torch."):
            for table in (vars(module), module._buffers):
                for name in list(table):
                    if _is_kept(table[name]):
                        yield (table, name), _value((table, name))


def _is_kept(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is Tensor and value.numel() == 1)


def _value(place: _Attribute) -> Any:
    table, name = place
    value = table.get(name, _MISSING)
    return value.detach().clone() if isinstance(value, Tensor) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and one == other


def _key(place: _Attribute) -> tuple[int, str]:
    table, name = place
    return id(table), name
