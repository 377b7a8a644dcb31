"""The state of a training before an update: its weights and the state of its optimizers, copied; and by reference what
is never overwritten."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradstudio.crash.call_log import CallLog
from gradstudio.crash.logged_calls import Ref
from gradstudio.engine.operation_watcher import has_memory
from gradstudio.engine.torch_internals import tensor_lists
from gradstudio.watching.measuring.parameters import lacks_memory
from gradstudio.watching.measuring.sharded_parameters import local_part


class CalledModel(NamedTuple):
    """Everything needed to repeat the call of a model."""

    of: Any  # HookedModule
    inputs: tuple[Any, ...]
    named_inputs: dict[str, Any]
    state: Any  # PassState
    autocast: Any


class PassEvent(NamedTuple):
    """A forward pass of a model within the call: its inputs, and the numbers of its outputs; None if it has raised."""

    kept: CalledModel
    taken: tuple[Ref, ...]
    gave: tuple[int, ...] | None


@dataclass(slots=True)
class KeptBackward:
    """One backward pass: the calls before it, the number of the tensor that it began from, -1 if unknown, and the loss
    scale."""

    log: CallLog
    root: int
    scale: float


@dataclass(slots=True)
class KeptStep:
    """One step: its backward passes, the groups of each optimizer, what was observed and measured."""

    number: int
    passes: list[KeptBackward]
    groups: list[list[dict[str, Any]]] = field(default_factory=list)
    clip: tuple[str, float] = ("none", 0.0)
    loss: float = 0.0
    norm: float = 0.0

    @property
    def nbytes(self) -> int:
        """Memory of its batches in bytes."""
        return sum(each.tensor.nbytes for made in self.passes for each in made.log.outside if not each.of.requires_grad)

    @property
    def is_written_to(self) -> bool:
        """Whether the script has written into its batch since."""
        return any(not each.is_unchanged for made in self.passes for each in made.log.outside if _is_batch(each.of))


def _is_batch(tensor: Tensor) -> bool:
    return not tensor.requires_grad and tensor.numel() > 1


class KeptState:
    """Weights and optimizers before the update of a step, and the steps from it on."""

    def __init__(self) -> None:
        self.number = 0
        self.steps: list[KeptStep] = []
        # Objects that the script releases are not kept alive here.
        self._weights: list[weakref.ref[Tensor]] = []
        self._optimizers: list[tuple[weakref.ref[Optimizer], list[tuple[weakref.ref[Tensor], str]]]] = []
        self._values: list[Any] = []  # the state of the optimizers, in that order; `_COPIED` for a tensor
        self._copies: list[Tensor] = []  # of the weights, and of the tensors that the optimizers keep
        self._marks: list[list[int]] = []  # of the originals

    def take(
        self, number: int, weights: Sequence[Tensor], optimizers: Sequence[Optimizer], *, parted: bool = False
    ) -> None:
        """Copy the current state, reusing the memory of the previous copies if it fits; of `parted` weights the part of
        this process."""
        self.number, self.steps = number, []
        self._weights, self._optimizers, values = list(map(weakref.ref, weights)), [], []
        for each in optimizers:
            kept_of = {weight: kept for weight, kept in each.state.items() if isinstance(kept, dict)}
            names = [(of, key) for weight, kept in kept_of.items() for of in (weakref.ref(weight),) for key in kept]
            self._optimizers.append((weakref.ref(each), names))
            values += [value for kept in kept_of.values() for value in kept.values()]
        tensors = [*weights, *[value for value in values if isinstance(value, Tensor)]]
        if parted:
            tensors = list(map(local_part, tensors))
        self._values = [_COPIED if isinstance(value, Tensor) else value for value in values]
        marks = _marks(tensors)
        if not (marks and marks == self._marks):  # seldom
            if not all(map(has_memory, tensors[: len(weights)])) or (not marks and any(map(lacks_memory, tensors))):
                raise ValueError("the script keeps the memory of its weights elsewhere between two steps")
            if list(map(_format, tensors)) != list(map(_format, self._copies)):
                self._copies = [torch.empty_like(each, requires_grad=False) for each in tensors]
        self._marks = marks
        with torch.no_grad():
            tensor_lists.copy_(self._copies, tensors)

    @property
    def weights(self) -> list[Tensor]:
        """The weights, which the first copies are of; ValueError if the script has released one."""
        weights = [weight for each in self._weights if (weight := each()) is not None]
        if len(weights) < len(self._weights):
            raise ValueError("the script has let go of the model")
        return weights

    @property
    def optimizers(self) -> list[tuple[Optimizer, list[tuple[Tensor, str, Any]]]]:
        """The optimizers, each with its state for each weight; a copy if that is a tensor."""
        copies = iter(self._copies[len(self._weights) :])
        values = iter([next(copies) if value is _COPIED else value for value in self._values])
        held = [(each(), [(of(), key, next(values)) for of, key in names]) for each, names in self._optimizers]
        return [
            (optimizer, [(weight, key, value) for weight, key, value in plan if weight is not None])
            for optimizer, plan in held if optimizer is not None
        ]  # fmt: skip

    def put_back(self) -> None:
        """Write the copies back to their originals."""
        with torch.no_grad():
            for weight, copy in zip(self.weights, self._copies, strict=False):
                weight.copy_(copy)
            for optimizer, plan in self.optimizers:
                for weight, key, value in plan:
                    kept = optimizer.state[weight]
                    if isinstance(value, Tensor):
                        kept[key].copy_(value)
                    else:
                        kept[key] = value

    @property
    def copies_of_weights(self) -> list[Tensor]:
        return self._copies[: len(self._weights)]


_COPIED = object()
_format = attrgetter("shape", "dtype", "device")


def _marks(tensors: list[Tensor]) -> list[list[int]]:
    """Return the addresses and sizes of tensors; [] if one has no memory of its own."""
    try:
        marks = [list(map(Tensor.data_ptr, tensors)), list(map(Tensor.numel, tensors))]
    except RuntimeError:  # it wraps others
        return []
    return [*marks, list(map(Tensor.element_size, tensors))] if all(marks[0]) else []


def state_bytes(weights: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> int:
    """Return the memory needed for a copy of the state."""
    kept = [value for each in optimizers for state in each.state.values() for value in state.values()]
    return sum(local_part(each).nbytes for each in (*weights, *kept) if isinstance(each, Tensor))
