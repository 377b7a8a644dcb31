"""What was heard and measured so far of the step that is being made. Made new for each step, and for each one that a
script begins anew by throwing its gradients away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gradstudio.core.provenance import Provenance
from gradstudio.core.unknown import UNKNOWN
from gradstudio.watching.births.passed_over import PassedOver
from gradstudio.watching.births.step_births import NO_BIRTH, Birth
from gradstudio.watching.measuring.parameters import Gradient


def unknown_norm() -> float:
    """Stands for a norm that nobody measures."""
    return UNKNOWN


@dataclass(slots=True)
class OpenStep:
    """One step. `passed_over` are batches that the script has skipped since the step before."""

    has_thrown: bool = False  # whether gradients were thrown away since the step before
    passed_over: list[PassedOver] = field(default_factory=list)
    was_as_seen: bool = False  # whether the parameters were as at first at the first backward pass
    losses: float = 0.0
    micro_batches: int = 0
    scale: float = 1.0
    rate: float = UNKNOWN  # before the step; without an optimizer it stays so
    clip: tuple[str, float] = ("none", 0.0)
    explained: Birth = NO_BIRTH  # of what is not finite in the step
    birth: Provenance | None = None  # of the step's loss
    birth_before: Provenance | None = None  # before the latest backward pass
    gradient: Gradient | None = None
    read_figures: Callable[[], None] | None = None  # takes those of the latest backward pass, on which a GPU works
    zero_marks: list[int] = field(default_factory=list)  # of gradients that the latest pass gave, where all are 0
    unused: set[int] | None = None  # places of the parameters that no pass wrote a gradient for, if known
    weights_of_pass: list[int] = field(default_factory=list)  # marks at a backward pass that is not finite
    used: Any = None  # the observer whose optimizer has stepped since the backward pass
    were_finite: bool = False  # whether thrown gradients were all finite, and the script has put others there
    # Gradients that no backward pass was heard of, before they were clipped, and their marks after that; none after a
    # clip by value, whose end is not heard.
    before_clip: Gradient | None = None
    marks_of_clip: list[int] | None = None
    norm_by_hand: float = UNKNOWN  # of gradients that were clipped before an update by hand
    is_ready: bool = False  # whether the update begins
    is_empty: bool = False  # whether it is made without any gradient
    is_evaluated_again: bool = False  # whether it has made further backward passes, as LBFGS does
    is_passed_by: bool = False  # whether the step becomes no row, as far as is known
    clipped_norm: Callable[[], float] = unknown_norm
    factor: float = 1.0  # by which a fused optimizer divides
    left_out: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # weights without their gradients, with them
    is_put_back: bool = False  # whether they have them again

    def explain(self, provenance: Provenance | None, unknown: str) -> None:
        """Hear where the first value was born that is not finite, or why that is unknown. What was heard first
        holds."""
        known, why = self.explained
        self.explained = known or provenance, why or unknown

    def anew(self) -> OpenStep:
        """Return the step as the script begins it again."""
        self.put_back()
        return OpenStep(self.has_thrown, self.passed_over)

    def leave_out(self, tensors: list[Tensor]) -> None:
        """Let an optimizer find no gradient, so that it changes neither weights nor state."""
        self.is_put_back = False
        self.left_out = [(tensor, gradient) for tensor in tensors if (gradient := tensor.grad) is not None]
        for tensor, _ in self.left_out:
            tensor.grad = None

    def put_back(self) -> None:
        """Give the weights back the gradients that were left out."""
        for tensor, gradient in () if self.is_put_back else self.left_out:
            if tensor.grad is None:
                tensor.grad = gradient
        self.is_put_back = True
