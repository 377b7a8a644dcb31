"""What goes into a model and what comes out: what a task tells the model that is to learn it."""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """Inputs are (batch, time_steps, features). Outputs are (batch, outputs) where one answer is asked for, and
    (batch, answers, outputs) where the last `answers` time steps are to be answered, more than one."""

    time_steps: int
    features: int
    outputs: int
    answers: int = 1

    @property
    def each_step(self) -> bool:
        """Whether every time step is to be answered."""
        return self.answers == self.time_steps > 1

    @property
    def of_a_step(self) -> Shape:
        """Of one time step by itself."""
        return Shape(1, self.features, self.outputs)
