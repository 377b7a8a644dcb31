"""A stack of hidden layers and a head: the common part of a fully connected network and a convolutional one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, cast

from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.checkpointing import run_checkpointed
from gradstudio.engine.models.nonlinearities import ACTIVATIONS
from gradstudio.engine.models.residuals import Residual
from gradstudio.engine.shape import Shape

# Each creates the norm of a hidden layer.
Norms = Mapping[str, Callable[[Model], nn.Module | None]]


class HiddenBase(nn.Module):
    """A hidden layer, whose second base class, nn.Linear or nn.Conv2d, computes the sums of the inputs. It returns
    activation(norm(sums)) + inputs with the norm before (pre), or norm(activation(sums) + inputs) with the norm after
    (post)."""

    norms: ClassVar[Norms]

    def prepare(self, knobs: Model, residual: bool) -> None:
        """Choose the activation, the norm and the residual."""
        self.activation = ACTIVATIONS[knobs.activation]
        self.residual = Residual(knobs) if residual else None
        self.norm = self.norms[knobs.norm](knobs)
        self.norm_first = knobs.norm_position == "pre"

    def sums(self, input: Tensor) -> Tensor:
        """Return the product of the weight and the input, before norm and activation."""
        return super().forward(input)

    def forward(self, input: Tensor) -> Tensor:  # torch's own name
        output = self.sums(input)
        if self.norm is not None and self.norm_first:
            output = self.norm(output)
        output = self.activation(output)
        if self.residual is not None:
            output = self.residual(input, output)
        if self.norm is not None and not self.norm_first:
            output = self.norm(output)
        return output


class HiddenStack(nn.Module):
    """(batch, time steps, features) -> (batch, outputs), or (batch, answers, outputs). If every time step is to be
    answered, each is an example of its own, so that no answer uses later steps. The first layer has no residual: its
    input is the image."""

    def __init__(
        self, knobs: Model, shape: Shape, inputs: int, layer: Callable[[int, Model, bool], HiddenBase]
    ) -> None:
        """`inputs`: those of the first layer."""
        super().__init__()
        self.each_step = shape.each_step
        shape = shape.of_a_step if self.each_step else shape
        sizes = [inputs] + [knobs.width] * (knobs.depth - 1)
        self.hidden = nn.ModuleList(
            layer(size, knobs, knobs.residual and index > 0) for index, size in enumerate(sizes)
        )
        self.head = nn.Linear(knobs.width, shape.answers * shape.outputs)
        self.answers = shape.answers
        self.checkpointing = knobs.checkpointing

    def arrange(self, inputs: Tensor) -> Tensor:
        """Return the inputs in the form expected by the first layer."""
        raise NotImplementedError

    def pool(self, state: Tensor) -> Tensor:
        """Return the outputs of the last layer in the form expected by the head."""
        return state

    def forward(self, inputs: Tensor) -> Tensor:
        state = self.arrange(inputs)
        for layer in self.hidden:
            state = run_checkpointed(layer, state) if self.checkpointing and self.training else layer(state)
        outputs = self.head(self.pool(state))
        if self.each_step:
            return outputs.unflatten(0, inputs.shape[:2])
        return outputs if self.answers == 1 else outputs.unflatten(1, (self.answers, -1))

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """Yield each weight, in forward order, and a function that computes its sums, before norm and activation."""
        state = self.arrange(inputs)
        for layer in cast("list[HiddenBase]", self.hidden):
            yield cast("Tensor", layer.weight), lambda layer=layer, state=state: layer.sums(state)
            state = layer(state)
        yield self.head.weight, lambda: self.head(self.pool(state))
