"""What a training depends on before an update: its weights and the state of its optimizers, copied; what nobody writes
to, as it is."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradstudio.crash.call_log import CallLog, Ref
from gradstudio.engine.torch_internals import tensor_lists
from gradstudio.watching.measuring.parameters import lacks_memory


class CalledModel(NamedTuple):
    """What is needed to call a model as it was called."""

    of: Any  # HookedModule
    inputs: tuple[Any, ...]
    named_inputs: dict[str, Any]
    state: Any  # PassState
    autocast: Any


class PassEvent(NamedTuple):
    """A forward pass of a model within what was called: what it took, and the numbers of what it gave; None where it
    has raised."""

    kept: CalledModel
    taken: tuple[Ref, ...]
    gave: tuple[int, ...] | None


@dataclass(slots=True)
class KeptBackward:
    """One backward pass: what was called for it, the number of the tensor that it began from, -1 where that is not
    known, and the loss scale."""

    log: CallLog
    root: int
    scale: float


@dataclass(slots=True)
class KeptStep:
    """One step: its backward passes, the groups of each optimizer, what was heard and measured."""

    number: int
    passes: list[KeptBackward]
    groups: list[list[dict[str, Any]]] = field(default_factory=list)
    clip: tuple[str, float] = ("none", 0.0)
    loss: float = 0.0
    norm: float = 0.0

    @property
    def nbytes(self) -> int:
        """Memory of what it holds of its batches."""
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
        # Of which the first copies are. What the script lets go of is not held here.
        self._weights: list[weakref.ref[Tensor]] = []
        self._optimizers: list[tuple[weakref.ref[Optimizer], list[tuple[weakref.ref[Tensor], str, Any]]]] = []
        self._copies: list[Tensor] = []

    def take(self, number: int, weights: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> None:
        """Copy what there is now, into the memory of the copies before where that fits."""
        tensors, self.number, self.steps = list(weights), number, []
        self._weights, self._optimizers = list(map(weakref.ref, weights)), []
        for optimizer in optimizers:
            plan: list[tuple[weakref.ref[Tensor], str, Any]] = []
            for weight, kept in optimizer.state.items():
                of = weakref.ref(weight)
                for key, value in kept.items() if isinstance(kept, dict) else ():
                    if isinstance(value, Tensor):
                        plan.append((of, key, _Place(len(tensors))))
                        tensors.append(value)
                    else:
                        plan.append((of, key, value))
            self._optimizers.append((weakref.ref(optimizer), plan))
        if any(map(lacks_memory, tensors)):
            raise ValueError("the script keeps a weight elsewhere between two steps")
        with torch.no_grad():
            if len(tensors) == len(self._copies) and all(map(_fits, tensors, self._copies)):
                tensor_lists.copy_(self._copies, tensors)
            else:
                self._copies = [each.detach().clone() for each in tensors]

    @property
    def weights(self) -> list[Tensor]:
        """The weights, of which the first copies are; ValueError where the script has let go of one."""
        found = [weight for each in self._weights if (weight := each()) is not None]
        if len(found) < len(self._weights):
            raise ValueError("the script has let go of the model")
        return found

    @property
    def optimizers(self) -> list[tuple[Optimizer, list[tuple[Tensor, str, Any]]]]:
        """The optimizers, each with what it kept of each weight; a `_Place` is that of a copy."""
        return [
            (optimizer, [(weight, key, value) for of, key, value in plan if (weight := of()) is not None])
            for each, plan in self._optimizers
            if (optimizer := each()) is not None
        ]

    def put_back(self) -> None:
        """Write the copies where they came from."""
        with torch.no_grad():
            for weight, copy in zip(self.weights, self._copies, strict=False):
                weight.copy_(copy)
            for optimizer, plan in self.optimizers:
                for weight, key, held in plan:
                    kept, value = optimizer.state[weight], self.value(held)
                    if isinstance(value, Tensor):
                        kept[key].copy_(value)
                    else:
                        kept[key] = value

    @property
    def copies_of_weights(self) -> list[Tensor]:
        return self._copies[: len(self._weights)]

    def value(self, held: Any) -> Any:
        """Return what an optimizer kept: a copy for a tensor."""
        return self._copies[held.place] if isinstance(held, _Place) else held


class _Place(NamedTuple):
    place: int


def _fits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.device == other.device


def has_memory(tensor: Tensor) -> bool:
    """Return whether there is something to copy."""
    try:
        return tensor.numel() == 0 or tensor.untyped_storage().nbytes() > 0
    except (RuntimeError, NotImplementedError):  # it wraps others
        return True


def state_bytes(weights: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> int:
    """Return what a copy of the state takes."""
    kept = [value for each in optimizers for state in each.state.values() for value in state.values()]
    return sum(each.nbytes for each in (*weights, *kept) if isinstance(each, Tensor))
