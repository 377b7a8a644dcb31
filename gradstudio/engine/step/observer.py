"""The observer of a step, which hears the calls of its loop, its phases and each loss while the step is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradstudio.core.loop_calls import Call
from gradstudio.core.provenance import Phase


class Observer:
    """Keeps the calls of a step's loop, in order. A subclass may listen to the rest too, and must not change the
    step."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.call = self.calls.append  # with the name of a call, just before it is made

    def phase(self, phase: Phase) -> None:
        """Hear that the gradients are unscaled, or that the update begins. The passes before that tell their phases
        themselves."""

    def takes(self, batch: Sequence[Any]) -> None:
        """Hear the micro-batch of which a forward pass is made next. Passes that repeat a recorded one are not told."""

    def on_loss(self, loss: Tensor) -> None:
        """Hear the loss that a forward pass gave, times the loss scale; the backward pass is next. Passes
        that repeat a recorded one are not told."""
