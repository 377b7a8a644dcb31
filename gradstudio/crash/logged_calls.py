"""What is recorded of a call of torch, and of a derivative that a script defines itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.autograd_nodes import version_of


class Ref(NamedTuple):
    """A tensor among the arguments of a call: the result of an earlier call, or else the index among those from
    outside."""

    is_given: bool
    place: int


class LoggedCall(NamedTuple):
    """A call. `given` and `named` have a `Ref` for each tensor. `gives` are the numbers of the tensors in its result,
    None for one that raised."""

    function: Callable[..., Any]
    given: Any
    named: Any
    gives: tuple[int, ...] | None
    module: str
    line: str
    autocast: tuple[tuple[str, torch.dtype], ...]
    grad: bool
    random: Tensor | None = None  # the state of the random numbers before it, unless an earlier call has left that one


class OutsideTensor(NamedTuple):
    """A tensor that was an argument of a call without being the result of one: itself or a copy, `of` the original, and
    its version at that time."""

    tensor: Tensor
    version: int
    of: Tensor
    version_of_original: int

    @property
    def is_unchanged(self) -> bool:
        return version_of(self.tensor) == self.version

    @property
    def is_outdated(self) -> bool:
        """Whether it is a weight that has been updated since it was logged."""
        return self.of.requires_grad and version_of(self.of) != self.version_of_original


class LoggedDerivative(NamedTuple):
    """The derivative of result number `of`. `calls` turn tensor number `gradient`, the gradient of the result, into
    those of its inputs, `gives`."""

    name: str
    of: int
    takes: list[Ref | None]
    gradient: int
    calls: list[LoggedCall]
    gives: list[Ref | None]
    module: str
    line: str


class NotObserved(Exception):
    """Something was computed where no call of torch is observed."""
