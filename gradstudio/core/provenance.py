"""Where the first NaN or Inf of a run was born: the operation, what it was given, and what led up to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["forward", "loss", "backward", "unscale", "update"]


@dataclass(frozen=True)
class Operation:
    """One operation on the way of a non-finite value. `largest` are absolute values among the finite ones, NaN without any."""

    phase: Phase
    module: str  # its name in the model; empty outside of it
    name: str  # as torch calls it, such as aten.log.default
    of: str  # in the backward pass: of which operation it is the derivative, as autograd calls it
    dtype: str
    taken_largest: float
    taken_nan: int
    taken_inf: int
    given_largest: float
    given_nan: int
    given_inf: int

    @property
    def produced(self) -> bool:
        """Whether the value was born here, of finite ones; else it only passed it on."""
        return not (self.taken_nan or self.taken_inf)


@dataclass(frozen=True)
class Provenance:
    """`chain` begins with the operation where the value was born and ends where it reached the loss, the gradient or the weights.
    `growth` is the largest absolute value, or the norm, along what it names (layers or time steps) on the way there."""

    step: int
    phase: Phase
    module: str
    operation: str
    cause: str  # a sentence
    micro_batch: int
    micro_batches: int
    time_step: int | None  # of a recurrent model
    layers: tuple[str, ...]  # that it concerns
    chain: tuple[Operation, ...]
    growth_along: str = ""
    growth: tuple[tuple[str, float], ...] = ()
    led_up: str = ""  # what the steps before it and the changes of knobs did
