"""One forward pass of somebody's model, kept so that it can be made again: its inputs, the state and the number format
that it began with, what it gave, and the gradients that came back. References, no copies."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.engine.operation_watcher import is_finite, values_of
from gradstudio.watching.pass_state import PassState
from gradstudio.watching.trees import tensors_of


class Autocast(NamedTuple):
    """What autocast was set to for a kind of device; its number format, None where it was not asked for."""

    device: str
    enabled: bool
    dtype: torch.dtype | None


@dataclass(eq=False, slots=True, weakref_slot=True)
class KeptPass:
    """One forward pass. `given` are the outputs that need a gradient, without their graph; `gradients` what came back
    to each of them, None before that. Versions tell a tensor that is changed in place. `held_by` refers to
    something that lives as long as the graph of each output."""

    inputs: tuple[Any, ...]
    named_inputs: dict[str, Any]
    taken: list[tuple[Tensor, int]]
    autocast: tuple[Autocast, ...]
    training: bool
    state: PassState
    given: list[tuple[Tensor, int]] = field(default_factory=list)
    gradients: list[Tensor | None] = field(default_factory=list)
    held_by: list[weakref.ref[Any]] = field(default_factory=list)

    @classmethod
    def begin(cls, inputs: tuple[Any, ...], named_inputs: dict[str, Any], training: bool, state: PassState) -> KeptPass:
        """Return a pass that is about to be made."""
        tensors = tensors_of((inputs, named_inputs)) if named_inputs else _several(inputs)
        return cls(
            inputs,
            named_inputs,
            [(tensor, version(tensor)) for tensor in tensors],
            _autocast(),
            training,
            state,
        )

    @property
    def is_held(self) -> bool:
        """Whether the script still has the graph of an output, so that a gradient can come back."""
        return any(each() is not None for each in self.held_by)

    @property
    def inputs_changed(self) -> bool:
        """Whether an input was changed in place since."""
        return any(version(tensor) != before for tensor, before in self.taken)

    @property
    def results(self) -> list[Tensor | None]:
        """The outputs as they were; None for one that was changed in place since."""
        return [self.result(place) for place in range(len(self.given))]

    @property
    def broken_results(self) -> list[Tensor]:
        """The outputs that are not finite. Inf in one of several numbers may be a mask."""
        return [each for each in self.results if each is not None and _is_broken(each)]

    def result(self, place: int) -> Tensor | None:
        """Return an output as it was; None where it was changed in place since."""
        tensor, before = self.given[place]
        return tensor if version(tensor) == before else None


def _is_broken(result: Tensor) -> bool:
    return not is_finite(result) if result.numel() == 1 else values_of(result).nan > 0


def _several(inputs: tuple[Any, ...]) -> Sequence[Tensor]:
    """Return the tensors among the inputs: mostly one, which is found in a third of the time."""
    return inputs if len(inputs) == 1 and isinstance(inputs[0], Tensor) else tensors_of(inputs)


def version(tensor: Tensor) -> int:
    """Return a number that changes with every change in place; always 0 for a tensor that torch does not count."""
    return 0 if tensor.is_inference() else tensor._version


def _autocast() -> tuple[Autocast, ...]:
    """Return what autocast is set to."""
    on_host, on_gpu = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    if not (on_host or on_gpu):
        return _OFF
    return (
        Autocast("cpu", on_host, torch.get_autocast_dtype("cpu")),
        Autocast("cuda", on_gpu, torch.get_autocast_dtype("cuda")),
    )


_OFF = Autocast("cpu", False, None), Autocast("cuda", False, None)
