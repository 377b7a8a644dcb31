"""The origin of the first NaN or Inf of a run: the operation, its inputs and outputs, and what led up to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

Phase = Literal["data", "forward", "loss", "backward", "unscale", "update"]


PHASES: dict[Phase, str] = {
    "data": "data",
    "forward": "forward pass",
    "loss": "loss",
    "backward": "backward pass",
    "unscale": "unscaling of the gradient",
    "update": "update",
}


OF_A_MASK = "Inf of a mask"  # in a cause, for an Inf that was put in rather than produced by an operation


class ProvenanceUnknown(Exception):
    """The origin cannot be determined. The text says why, as a sentence."""


def is_node(name: str) -> bool:
    """Return whether a name is that of a node of autograd's graph, which is all that is known about loss code."""
    return re.search(r"Backward\d*$", name) is not None


@cache
def operation_of(name: str) -> str:
    """Return the name of an operation: linalg_vector_norm for aten.linalg_vector_norm.default, and for the node
    LinalgVectorNormBackward0."""
    if not is_node(name):
        return re.sub(r"^aten\.(\w+)\b.*", r"\1", name)
    words = re.sub(r"Backward\d*$", "", name.rpartition("::")[2])
    words = re.sub(r"(?<=\d)[A-Z](?![a-z])", lambda letter: letter[0].lower(), words)  # of NllLoss2D and Log1P
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()


@dataclass(frozen=True)
class Operation:
    """One operation that a non-finite value passed through. `taken` are its inputs, `given` its outputs; `largest` is
    the largest absolute finite value, NaN if none is finite."""

    phase: Phase
    module: str  # its name in the model; empty outside of it
    name: str  # as torch calls it, such as aten.log.default
    of: str  # in the backward pass: the operation whose derivative it is, by autograd's name
    dtype: str
    taken_largest: float
    taken_nan: int
    taken_inf: int
    given_largest: float
    given_nan: int
    given_inf: int
    taken_known: bool = True  # whether all its inputs are known

    @property
    def is_birth(self) -> bool:
        """True if the value was born here, from finite inputs; otherwise the operation passed it on, or may have."""
        return self.taken_known and not (self.taken_nan or self.taken_inf)


@dataclass(frozen=True)
class Provenance:
    """The birth and the spread of a non-finite value. `chain` begins with the operation in which it was born and ends
    where it reached the loss, the gradient or the weights. `growth` is the largest absolute value, or the norm, along
    the layers or time steps on the way there."""

    step: int
    phase: Phase
    module: str
    operation: str
    cause: str  # a sentence
    micro_batch: int
    micro_batches: int
    time_step: int | None  # of a recurrent model
    layers: tuple[str, ...]  # the layers involved
    chain: tuple[Operation, ...]
    growth_along: str = ""
    growth: tuple[tuple[str, float], ...] = ()
    led_up: str = ""  # what happened in the steps before: norms, updates, knob changes
    source: str = ""  # of a watched script: the line of code, with its file and number
    taken: str = ""  # of a watched script: the input values of the operation
    rank: int | None = None  # of several ranks: the one whose step was replayed
    ranks: tuple[int, ...] = ()  # all ranks with a non-finite loss or gradient of their own in that step

    @property
    def is_from_input(self) -> bool:
        """True if the value was in the model's input, rather than produced by the model."""
        return self.phase == "data" and not self.chain[0].is_birth

    @property
    def was_given(self) -> bool:
        """True if the value was in the input of the model or the loss: it came with the data, or a script produced it
        before."""
        given = bool(self.chain) and self.chain[0].taken_known and not self.chain[0].is_birth
        return given and OF_A_MASK not in self.cause and (self.phase in ("data", "loss") or self.operation == "input")

    @property
    def is_of_update(self) -> bool:
        """True if the update itself produced the value, as opposed to one that was later found in the weights."""
        return self.phase == "update" and bool(self.chain) and self.chain[0].is_birth

    @property
    def is_birth(self) -> bool:
        """False if the value was first seen here and its inputs are unknown, so that it may have been born before."""
        return all(operation.taken_known for operation in self.chain[:1])

    @property
    def short_name(self) -> str:
        """The operation without torch's namespace and overload: log for aten.log.default."""
        return self.operation.split(".")[1] if self.operation.count(".") else self.operation
