"""One forward pass of a user's model, kept for replay: its inputs, its initial state and number format, its outputs,
and the gradients that came back. References, no copies."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.engine.operation_watcher import is_finite, values_of
from gradstudio.watching.births.hooked_module import HookedModule
from gradstudio.watching.births.pass_state import PassState
from gradstudio.watching.hooks.trees import tensors_of


class Autocast(NamedTuple):
    """The autocast setting for a kind of device; its number format, None if it was not queried."""

    device: str
    enabled: bool
    dtype: torch.dtype | None


class KeptPass:
    """One forward pass. `given` are the outputs that need a gradient, without their graph; `gradients` their gradients,
    None until those have come. Versions reveal a tensor that is changed in place. `held_by` refers to an object that
    lives as long as the graph of each output."""

    __slots__ = (
        "__weakref__", "autocast", "given", "gradients", "held_by", "inputs", "named_inputs", "of", "state", "taken",
        "training",
    )  # fmt: skip

    def __init__(
        self,
        of: HookedModule,
        inputs: tuple[Any, ...],
        named_inputs: dict[str, Any],
        training: bool,
        state: PassState,
        autocast: tuple[Autocast, ...],
    ) -> None:
        """Keep a pass of the module `of` that is about to be made."""
        self.of = of
        self.inputs, self.named_inputs = inputs, named_inputs
        self.training, self.state, self.autocast = training, state, autocast
        if len(inputs) == 1 and not named_inputs and isinstance(tensor := inputs[0], Tensor):  # mostly
            self.taken = [(tensor, version(tensor))]
        else:
            self.taken = [(tensor, version(tensor)) for tensor in tensors_of((inputs, named_inputs))]
        self.given: list[tuple[Tensor, int]] = []
        self.gradients: list[Tensor | None] = []
        self.held_by: list[weakref.ref[Any]] = []

    @property
    def ends(self) -> list[Any]:
        """The nodes of autograd's graph that produced its inputs."""
        return [node for tensor, _ in self.taken if (node := tensor.grad_fn) is not None]

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient has come back to it."""
        return any(gradient is not None for gradient in self.gradients)

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
        """The original outputs; None for one that was changed in place since."""
        return [self.result(place) for place in range(len(self.given))]

    @property
    def broken_results(self) -> list[Tensor]:
        """The non-finite outputs. Inf among several numbers may be a mask."""
        return [each for each in self.results if each is not None and _is_broken(each)]

    def result(self, place: int) -> Tensor | None:
        """Return an original output; None if it was changed in place since."""
        tensor, before = self.given[place]
        return tensor if version(tensor) == before else None


def all_finite(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether no tensor has a non-finite value, as far as they are known."""
    return all(tensor is None or values_of(tensor).finite for tensor in tensors)


def _is_broken(result: Tensor) -> bool:
    return not is_finite(result) if result.numel() == 1 else values_of(result).nan > 0


def version(tensor: Tensor) -> int:
    """Return a number that changes with every in-place change; always 0 for a tensor whose version torch does not
    track."""
    try:
        return tensor._version
    except RuntimeError:  # one from inference mode
        return 0


NO_AUTOCAST = Autocast("cpu", False, None), Autocast("cuda", False, None)


def autocast_now() -> tuple[Autocast, ...]:
    """Return the current autocast settings."""
    on_host, on_gpu = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    if not (on_host or on_gpu):
        return NO_AUTOCAST
    return (
        Autocast("cpu", on_host, torch.get_autocast_dtype("cpu")),
        Autocast("cuda", on_gpu, torch.get_autocast_dtype("cuda")),
    )
