"""A network that acts: at every time step it tells how likely each action is."""

from __future__ import annotations

from gradstudio.core.experiment import Model
from gradstudio.engine.models.mlp import MLP
from gradstudio.engine.shape import Shape


class Policy(MLP):
    """An MLP that acts: (batch, time steps, features) -> logits (batch, time steps, actions), for any number of time
    steps. It remembers nothing: each time step is an example of its own, for a batch norm too."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__(knobs, shape.of_a_step)
        self.each_step = True
