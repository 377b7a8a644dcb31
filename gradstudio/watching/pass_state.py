"""What a forward pass of somebody's model depends on besides its inputs, weights and torch's random numbers: what the
pass itself changes, such as `self.calls += 1`, and the random numbers of Python and numpy where it draws them."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gradstudio.watching.pass_variables import Variable, variables_of

LOOKS = 3  # passes that are looked at whole; after them only what has changed in one of them is kept
_MISSING = object()


class PassState(NamedTuple):
    """How a pass began: variables with their values, and the states of random numbers, None where none are drawn."""

    variables: dict[Variable, Any]
    python: Any
    numpy: Any

    def put_back(self) -> None:
        """Let the pass begin with the same again."""
        for each, value in self.variables.items():
            each.put_back(value)
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            np.random.set_state(self.numpy)

    def now(self) -> PassState:
        """Return what the same variables are now."""
        return PassState({each: each.value for each in self.variables}, None, None)


_PLAIN_STATE = PassState({}, None, None)


class PassStates:
    """Keeps the state of each pass. A model that changes nothing of the kind costs nothing after the first passes."""

    def __init__(self) -> None:
        self._looks = LOOKS
        self._changed: dict[Variable, None] = {}
        self._began: dict[Variable, Any] = {}  # the pass before
        self._python = self._numpy = False

    def before(self, model: nn.Module) -> PassState:
        """Return the state in which a pass begins."""
        try:
            return self._before(model)
        except Exception:  # of somebody's objects, which may do anything when they are looked at
            self._looks, self._changed, self._python, self._numpy = 0, {}, False, False
            return PassState({}, None, None)

    def _before(self, model: nn.Module) -> PassState:
        if self._looks:
            found = {each: each.value for each in variables_of(model)}
            self._note_changes(self._began, found)  # such as by a hook of the backward pass
            self._began = found
            return PassState(found, random.getstate(), np.random.get_state())
        if not (self._changed or self._python or self._numpy):
            return _PLAIN_STATE
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
        with suppress(Exception):
            self._note_changes(began.variables, {each: each.value for each in variables_of(model)})
        self._python = self._python or random.getstate() != began.python
        self._numpy = self._numpy or not all(map(np.array_equal, np.random.get_state(), began.numpy))
        if not self._looks:
            self._began = {}

    def _note_changes(self, before: dict[Variable, Any], after: dict[Variable, Any]) -> None:
        if before:
            for each, value in after.items():
                if not _same(before.get(each, _MISSING), value):
                    self._changed[each] = None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and one == other
