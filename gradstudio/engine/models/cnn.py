"""A stack of convolutions over the inputs as an image."""

from __future__ import annotations

import math

from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.hidden_stack import HiddenBase, HiddenStack, Norms
from gradstudio.engine.shape import Shape

# One group is a layer norm over channels and pixels, with a factor and a bias for each channel.
NORMS: Norms = {
    "none": lambda knobs: None,
    "batch": lambda knobs: nn.BatchNorm2d(knobs.width, momentum=knobs.norm_momentum),
    "layer": lambda knobs: nn.GroupNorm(1, knobs.width),
    "group": lambda knobs: nn.GroupNorm(math.gcd(knobs.width, 8), knobs.width),
}


class HiddenConvolution(HiddenBase, nn.Conv2d):
    """A hidden convolution: (batch, channels, height, width) -> (batch, model.width, height, width)."""

    norms = NORMS

    def __init__(self, channels: int, knobs: Model, residual: bool) -> None:
        super().__init__(channels, knobs.width, 3, padding=1)
        self.prepare(knobs, residual)


class CNN(HiddenStack):
    """A stack of convolutions over the time steps and features, seen as an image with one channel. If every time step
    is to be answered, each is an image of its own, as in an MLP. The head sees the mean of each channel over the image.
    """

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__(knobs, shape, 1, HiddenConvolution)

    def arrange(self, inputs: Tensor) -> Tensor:
        """Return (batch, 1, time steps, features); (batch * time steps, 1, 1, features) if each step is an image."""
        return (inputs.flatten(0, 1).unsqueeze(1) if self.each_step else inputs).unsqueeze(1)

    def pool(self, state: Tensor) -> Tensor:
        return state.mean((2, 3))
