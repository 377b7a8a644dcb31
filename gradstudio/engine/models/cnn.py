"""A stack of convolutions over the inputs as an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.experiment import Model
from gradstudio.engine.models.checkpointing import run_checkpointed
from gradstudio.engine.models.mlp import Hidden, Norms
from gradstudio.engine.shape import Shape

# One group is a layer norm over channels and pixels, with a factor and a bias for each channel.
NORMS: Norms = {
    "none": lambda knobs: None,
    "batch": lambda knobs: nn.BatchNorm2d(knobs.width, momentum=knobs.norm_momentum),
    "layer": lambda knobs: nn.GroupNorm(1, knobs.width),
}


class HiddenConvolution(Hidden, nn.Conv2d):
    """A hidden convolution: (batch, channels, height, width) -> (batch, model.width, height, width)."""

    def __init__(self, channels: int, knobs: Model, residual: bool) -> None:
        super().__init__(channels, knobs.width, 3, padding=1)
        self.prepare(knobs, NORMS, residual)


class CNN(nn.Module):
    """A stack of convolutions and a head: (batch, time steps, features), seen as an image of one channel -> (batch,
    outputs), or (batch, answers, outputs). Where every time step is to be answered, each is an image of its own, as in
    an MLP. The head sees the mean of each channel over the image. No residual goes around the first layer."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__()
        self.each_step = shape.each_step
        shape = shape.of_a_step if self.each_step else shape
        channels = [1] + [knobs.width] * knobs.depth
        self.hidden = nn.ModuleList(
            HiddenConvolution(count, knobs, knobs.residual and index > 0) for index, count in enumerate(channels[:-1])
        )
        self.head = nn.Linear(knobs.width, shape.answers * shape.outputs)
        self.answers = shape.answers
        self.checkpointing = knobs.checkpointing

    def forward(self, inputs: Tensor) -> Tensor:
        state = self._image(inputs)
        for layer in self.hidden:
            state = run_checkpointed(layer, state) if self.checkpointing and self.training else layer(state)
        outputs = self.head(state.mean((2, 3)))
        if self.each_step:
            return outputs.unflatten(0, inputs.shape[:2])
        return outputs if self.answers == 1 else outputs.unflatten(1, (self.answers, -1))

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """Yield each weight, in forward order, and a function that computes its sums, before norm and activation."""
        state = self._image(inputs)
        for layer in cast("list[HiddenConvolution]", self.hidden):
            yield layer.weight, lambda layer=layer, state=state: F.conv2d(state, layer.weight, layer.bias, padding=1)
            state = layer(state)
        yield self.head.weight, lambda: self.head(state.mean((2, 3)))

    def _image(self, inputs: Tensor) -> Tensor:
        """Return (batch, 1, time steps, features); (batch * time steps, 1, 1, features) where each step is an image."""
        return (inputs.flatten(0, 1).unsqueeze(1) if self.each_step else inputs).unsqueeze(1)
