"""A stack of fully connected layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.experiment import Model
from gradstudio.engine.models.checkpointing import run_checkpointed
from gradstudio.engine.models.nonlinearities import ACTIVATIONS
from gradstudio.engine.models.residuals import Residual
from gradstudio.engine.shape import Shape

# Each makes the norm of a hidden layer.
Norms = Mapping[str, Callable[[Model], nn.Module | None]]
NORMS: Norms = {
    "none": lambda knobs: None,
    "batch": lambda knobs: nn.BatchNorm1d(knobs.width, momentum=knobs.norm_momentum),
    "layer": lambda knobs: nn.LayerNorm(knobs.width),
}


class Hidden(nn.Module):
    """A hidden layer, whose second base class, nn.Linear or nn.Conv2d, makes sums of the inputs. It returns
    activation(norm(sums)) + inputs with the norm before (pre), or norm(activation(sums) + inputs) with the norm after
    (post)."""

    def prepare(self, knobs: Model, norms: Norms, residual: bool) -> None:
        """Choose the activation, the norm and the residual."""
        self.activation = ACTIVATIONS[knobs.activation]
        self.residual = Residual(knobs) if residual else None
        self.norm = norms[knobs.norm](knobs)
        self.norm_first = knobs.norm_position == "pre"

    def forward(self, input: Tensor) -> Tensor:  # as torch calls it
        output = super().forward(input)
        if self.norm is not None and self.norm_first:
            output = self.norm(output)
        output = self.activation(output)
        if self.residual is not None:
            output = self.residual(input, output)
        if self.norm is not None and not self.norm_first:
            output = self.norm(output)
        return output


class HiddenLayer(Hidden, nn.Linear):
    """A fully connected hidden layer: (batch, inputs) -> (batch, width)."""

    def __init__(self, inputs: int, knobs: Model, residual: bool) -> None:
        super().__init__(inputs, knobs.width)
        self.prepare(knobs, NORMS, residual)


class MLP(nn.Module):
    """A stack of hidden layers and a head: (batch, time steps, features) -> (batch, outputs), or (batch, answers,
    outputs). Inputs are flattened. Where every time step is to be answered, each is an example of its own, so that no
    answer is read off the steps to come. No residual goes around the first layer: its input is the image."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__()
        self.each_step = shape.each_step
        shape = shape.of_a_step if self.each_step else shape
        sizes = [shape.time_steps * shape.features] + [knobs.width] * knobs.depth
        self.hidden = nn.ModuleList(
            HiddenLayer(size, knobs, knobs.residual and index > 0) for index, size in enumerate(sizes[:-1])
        )
        self.head = nn.Linear(knobs.width, shape.answers * shape.outputs)
        self.answers = shape.answers
        self.checkpointing = knobs.checkpointing

    def forward(self, inputs: Tensor) -> Tensor:
        state = self._flat(inputs)
        for layer in self.hidden:
            state = run_checkpointed(layer, state) if self.checkpointing and self.training else layer(state)
        outputs = self.head(state)
        if self.each_step:
            return outputs.unflatten(0, inputs.shape[:2])
        return outputs if self.answers == 1 else outputs.unflatten(1, (self.answers, -1))

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """Yield each weight, in forward order, and a function that computes its sums, before norm and activation."""
        state = self._flat(inputs)
        for layer in cast("list[HiddenLayer]", self.hidden):
            yield layer.weight, lambda layer=layer, state=state: F.linear(state, layer.weight, layer.bias)
            state = layer(state)
        yield self.head.weight, lambda: self.head(state)

    def _flat(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(0, 1) if self.each_step else inputs.flatten(1)
