"""The shape of a model's inputs and outputs, which its task determines."""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """Sizes of the inputs, (batch, time_steps, features), and the outputs: (batch, outputs) for one answer, (batch,
    answers, outputs) if the last `answers` time steps are to be answered, more than one."""

    time_steps: int
    features: int
    outputs: int
    answers: int = 1

    @property
    def each_step(self) -> bool:
        """True if every time step is to be answered."""
        return self.answers == self.time_steps > 1

    @property
    def of_a_step(self) -> Shape:
        """The shape for a single time step."""
        return Shape(1, self.features, self.outputs)
