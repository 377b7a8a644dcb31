"""A stack of fully connected layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.experiment import Model
from gradstudio.engine.models.activations import ACTIVATIONS
from gradstudio.engine.models.checkpointing import checkpointed

NORMS: dict[str, Callable[[int], nn.Module | None]] = {"none": lambda width: None, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class HiddenLayer(nn.Linear):
    """(batch, inputs) -> (batch, width): activation(norm(Wx + b)) + x with the norm before (pre), or
    norm(activation(Wx + b) + x) with the norm after (post)."""

    def __init__(self, inputs: int, knobs: Model, residual: bool) -> None:
        super().__init__(inputs, knobs.width)
        self.activation = ACTIVATIONS[knobs.activation]
        self.norm = NORMS[knobs.norm](knobs.width)
        self.norm_first = knobs.norm_position == "pre"
        self.residual = residual

    def forward(self, inputs: Tensor) -> Tensor:
        output = super().forward(inputs)
        if self.norm is not None and self.norm_first:
            output = self.norm(output)
        output = self.activation(output)
        if self.residual:
            output = output + inputs
        if self.norm is not None and not self.norm_first:
            output = self.norm(output)
        return output


class MLP(nn.Module):
    """(batch, time steps, features) -> logits (batch, classes). Inputs are flattened. The first hidden layer's input is
    the image and no hidden layer's output, so that no residual goes around it."""

    def __init__(self, knobs: Model, time_steps: int, features: int, classes: int) -> None:
        super().__init__()
        sizes = [time_steps * features] + [knobs.width] * knobs.depth
        self.hidden = nn.ModuleList(HiddenLayer(size, knobs, knobs.residual and index > 0) for index, size in enumerate(sizes[:-1]))
        self.head = nn.Linear(knobs.width, classes)
        self.checkpointing = knobs.checkpointing

    def forward(self, inputs: Tensor) -> Tensor:
        state = inputs.flatten(1)
        for layer in self.hidden:
            state = checkpointed(layer, state) if self.checkpointing and self.training else layer(state)
        return self.head(state)

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """In forward order, each weight and a function that computes the sums it makes, before norm and activation."""
        state = inputs.flatten(1)
        for layer in cast("list[HiddenLayer]", self.hidden):
            yield layer.weight, lambda layer=layer, state=state: F.linear(state, layer.weight, layer.bias)
            state = layer(state)
        yield self.head.weight, lambda: self.head(state)
