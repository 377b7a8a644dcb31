"""The observer of a step, whose callbacks receive the calls of its loop, its phases and each loss while the step is
made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradstudio.core.loop_calls import Call
from gradstudio.core.provenance import Phase


class Observer:
    """Records the calls of a step's loop, in order. A subclass may override the other callbacks, and must not change
    the step."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.call = self.calls.append  # with the name of a call, just before it is made

    def phase(self, phase: Phase) -> None:
        """Called when the gradients are unscaled and when the update begins. The passes before that report their phases
        themselves."""

    def takes(self, batch: Sequence[Any]) -> None:
        """Called with the micro-batch of the next forward pass, but not for passes that are replayed from a
        recording."""

    def on_loss(self, loss: Tensor) -> None:
        """Called with the loss of a forward pass, times the loss scale, before its backward pass; not for passes that
        are replayed from a recording."""
