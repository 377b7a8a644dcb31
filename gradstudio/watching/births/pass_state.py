"""What a forward pass of a user's model depends on besides its inputs and weights: state that the pass itself changes,
such as `self.calls += 1`, and the random numbers of torch, Python and numpy if it draws them."""

from __future__ import annotations

import random
import weakref
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

LOOKS = 3  # passes that are recorded completely; after them only what has changed in one of them
# passes between two checks whether torch's random numbers are drawn, for example by a dropout that starts later
LOOK_AGAIN = 32
_HAS_CUDA: Final = torch.backends.cuda.is_built()
_PLAIN = (int, float, bool, str, type(None))
_MISSING = object()

Variable = tuple[weakref.ref[nn.Module], str]  # an attribute of a module


def variables_of(model: nn.Module) -> dict[Variable, Any]:
    """Return the attributes of modules in which a pass may count: numbers, texts, and buffers of one entry. A pass does
    not change any such state of torch's own modules."""
    variables: dict[Variable, Any] = {}
    for module in model.modules():
        if not type(module).__module__.startswith("torch."):
            reference = weakref.ref(module)
            for name, value in (*vars(module).items(), *module.named_buffers(recurse=False)):
                if type(value) in _PLAIN:
                    variables[reference, name] = value
                elif type(value) is Tensor and value.numel() == 1:
                    variables[reference, name] = value.detach().clone()
    return variables


class Randomness(NamedTuple):
    """State of torch's own generators; `cuda` by device."""

    cpu: Tensor
    cuda: tuple[tuple[int, Tensor], ...]

    @classmethod
    def now(cls) -> Randomness:
        """Return the current state. This initializes no device."""
        cpu = torch.default_generator.get_state()
        if not (_HAS_CUDA and torch.cuda.is_initialized()):
            return cls(cpu, ())
        devices = range(torch.cuda.device_count())
        return cls(cpu, tuple((index, torch.cuda.get_rng_state(index)) for index in devices))

    def put_back(self) -> None:
        """Restore the state, so that torch draws the same numbers again."""
        torch.set_rng_state(self.cpu)
        for index, state in self.cuda:
            torch.cuda.set_rng_state(state, index)

    @property
    def is_now(self) -> bool:
        """Whether nothing was drawn since."""
        now = Randomness.now()
        pairs = zip(now.cuda, self.cuda, strict=False)
        return (
            torch.equal(now.cpu, self.cpu)
            and len(now.cuda) == len(self.cuda)
            and all(torch.equal(one, other) for (_, one), (_, other) in pairs)
        )


class PassState(NamedTuple):
    """The state before a pass: variables with their values, and the states of random numbers, None if none are
    drawn."""

    variables: dict[Variable, Any]
    torch: Randomness | None
    python: Any
    numpy: Any

    def put_back(self) -> None:
        """Restore the state before the pass."""
        if self.torch is not None:
            self.torch.put_back()
        for (reference, name), value in self.variables.items():
            if (module := reference()) is not None:
                setattr(module, name, value.clone() if isinstance(value, Tensor) else value)
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            np.random.set_state(self.numpy)


PLAIN_STATE = PassState({}, None, None, None)  # of a pass that, judging by earlier passes, changes and draws nothing


class PassStates:
    """Records the state of each pass. A model that changes no such state costs nothing after the first passes."""

    def __init__(self) -> None:
        self._looks = LOOKS
        self._changed: dict[Variable, None] = {}
        self._began: dict[Variable, Any] = {}  # the previous pass
        self._torch = self._python = self._numpy = False
        self._is_plain = False  # whether the checks have found that a pass changes and draws nothing
        self.passes, self._training = 0, True

    def before(self, model: nn.Module) -> PassState:
        """Return the state before a pass."""
        self.passes += 1
        if self._is_plain and self.passes % LOOK_AGAIN and model.training is self._training:
            return PLAIN_STATE
        try:
            return self._before(model)
        except Exception:  # from the user's objects, which may do anything when they are compared
            self._looks, self._changed, self._torch, self._python, self._numpy = 0, {}, True, False, False
            self._is_plain = False
            return PassState({}, Randomness.now(), None, None)

    def _before(self, model: nn.Module) -> PassState:
        is_other_mode, self._training = model.training is not self._training, model.training
        if self._looks:
            variables = variables_of(model)
            self._note_changes(self._began, variables)  # for example by a hook of the backward pass
            self._began = variables
            return PassState(variables, Randomness.now(), random.getstate(), np.random.get_state())
        torch_draws = self._torch or is_other_mode or self.passes % LOOK_AGAIN == 0
        now = variables_of(model) if self._changed else {}
        return PassState(
            {each: now[each] for each in self._changed if each in now},
            Randomness.now() if torch_draws else None,
            random.getstate() if self._python else None,
            np.random.get_state() if self._numpy else None,
        )

    def after(self, model: nn.Module, began: PassState) -> None:
        """Learn from one of the first passes which variables a pass changes, and from some of the others whether it
        draws random numbers."""
        if began.torch is not None and not self._torch:
            self._torch = not began.torch.is_now
            self._is_plain = self._is_plain and not self._torch
        if not self._looks:
            return
        self._looks -= 1
        with suppress(Exception):
            self._note_changes(began.variables, variables_of(model))
        self._python = self._python or random.getstate() != began.python
        self._numpy = self._numpy or not all(map(np.array_equal, np.random.get_state(), began.numpy))
        if not self._looks:
            self._began = {}
            self._is_plain = not (self._changed or self._torch or self._python or self._numpy)

    def _note_changes(self, before: dict[Variable, Any], after: dict[Variable, Any]) -> None:
        if before:
            for each, value in after.items():
                if not _same(before.get(each, _MISSING), value):
                    self._changed[each] = None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and one == other
