"""A stack of fully connected layers."""

from __future__ import annotations

import math

from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.hidden_stack import HiddenBase, HiddenStack, Norms
from gradstudio.engine.shape import Shape

# Each creates the norm of a hidden layer.
NORMS: Norms = {
    "none": lambda knobs: None,
    "batch": lambda knobs: nn.BatchNorm1d(knobs.width, momentum=knobs.norm_momentum),
    "layer": lambda knobs: nn.LayerNorm(knobs.width),
    "group": lambda knobs: nn.GroupNorm(math.gcd(knobs.width, 8), knobs.width),
    "rms": lambda knobs: nn.RMSNorm(knobs.width),
}


class HiddenLayer(HiddenBase, nn.Linear):
    """A fully connected hidden layer: (batch, inputs) -> (batch, width)."""

    norms = NORMS

    def __init__(self, inputs: int, knobs: Model, residual: bool) -> None:
        super().__init__(inputs, knobs.width)
        self.prepare(knobs, residual)


class MLP(HiddenStack):
    """A stack of fully connected layers: inputs are flattened."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        step = shape.of_a_step if shape.each_step else shape
        super().__init__(knobs, shape, step.time_steps * step.features, HiddenLayer)

    def arrange(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(0, 1) if self.each_step else inputs.flatten(1)
