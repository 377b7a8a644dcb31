"""What a forward pass of somebody's model depends on besides its inputs, weights and torch's random numbers: what the
pass itself changes, such as `self.calls += 1`, and the random numbers of Python and numpy where it draws them."""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

LOOKS = 3  # passes that are looked at whole; after them only what has changed in one of them is kept
_PLAIN = (int, float, bool, str, type(None))
_MISSING = object()


class _Attribute(NamedTuple):
    """A number, a text or a tensor of one number that a module has as an attribute or a buffer."""

    module: weakref.ref[nn.Module]
    name: str

    @property
    def value(self) -> Any:
        """What it is now, a tensor as a copy."""
        value = getattr(self.module(), self.name, _MISSING)
        return value.detach().clone() if isinstance(value, Tensor) else value

    def put_back(self, value: Any) -> None:
        """Make it what it was."""
        module = self.module()
        if module is not None and value is not _MISSING:
            setattr(module, self.name, value.clone() if isinstance(value, Tensor) else value)
        elif hasattr(module, self.name):
            delattr(module, self.name)


class PassState(NamedTuple):
    """How a pass began: attributes with their values, and the states of random numbers, None where none are drawn."""

    attributes: dict[_Attribute, Any]
    python: Any
    numpy: Any

    def put_back(self) -> None:
        """Let the pass begin with the same again."""
        for each, value in self.attributes.items():
            each.put_back(value)
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            np.random.set_state(self.numpy)


class PassStates:
    """Keeps the state of each pass. A model that changes nothing of the kind costs nothing after the first passes."""

    def __init__(self) -> None:
        self._looks = LOOKS
        self._changed: dict[_Attribute, None] = {}
        self._python = self._numpy = False

    def before(self, model: nn.Module) -> PassState:
        """Return the state in which a pass begins."""
        if self._looks:
            return PassState(
                {each: each.value for each in _attributes(model)}, random.getstate(), np.random.get_state()
            )
        return PassState(
            {each: each.value for each in self._changed},
            random.getstate() if self._python else None,
            np.random.get_state() if self._numpy else None,
        )

    def after(self, model: nn.Module, began: PassState) -> None:
        """Learn from one of the first passes what a pass changes."""
        if not self._looks:
            return
        self._looks -= 1
        for each in _attributes(model):
            if not _same(began.attributes.get(each, _MISSING), each.value):
                self._changed[each] = None
        self._python = self._python or random.getstate() != began.python
        self._numpy = self._numpy or not all(map(np.array_equal, np.random.get_state(), began.numpy))


def _attributes(model: nn.Module) -> Iterator[_Attribute]:
    """Yield those of a person's own modules: a pass changes none of torch's that it depends on."""
    for module in model.modules():
        if not type(module).__module__.startswith("torch."):
            reference = weakref.ref(module)
            for name, value in (*vars(module).items(), *module.named_buffers(recurse=False)):
                if type(value) in _PLAIN or (type(value) is Tensor and value.numel() == 1):
                    yield _Attribute(reference, name)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and one == other
