"""A network that acts: at every time step it outputs how likely each action is."""

from __future__ import annotations

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.mlp import MLP
from gradstudio.engine.shape import Shape


class Policy(MLP):
    """An MLP that acts: (batch, time steps, features) -> logits (batch, time steps, actions), for any number of time
    steps. It has no memory: each time step is an example of its own, including for a batch norm."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__(knobs, shape.of_a_step)
        self.each_step = True
