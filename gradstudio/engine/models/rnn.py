"""A recurrent network that reads a sequence step by step and answers after the last one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.experiment import Model
from gradstudio.engine.models.activations import ACTIVATIONS
from gradstudio.engine.models.checkpointing import checkpointed
from gradstudio.engine.models.mlp import NORMS
from gradstudio.engine.shape import Shape


class RNN(nn.Module):
    """(batch, time steps, features) -> (batch, outputs), or (batch, answers, outputs). torch's own nn.RNN where it can do what the knobs ask,
    and otherwise the same maths in a plain loop over time."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__()
        if knobs.activation in ("tanh", "relu") and knobs.norm == "none" and not knobs.residual:
            self.rnn = nn.RNN(shape.features, knobs.width, knobs.depth, nonlinearity=knobs.activation, batch_first=True)
        else:
            self.rnn = RecurrentStack(shape.features, knobs)
        self.head = nn.Linear(knobs.width, shape.outputs)
        self.answers = shape.answers
        self.depth = knobs.depth
        self.checkpointing = knobs.checkpointing

    def forward(self, inputs: Tensor) -> Tensor:
        outputs, _ = checkpointed(self.rnn, inputs) if self.checkpointing and self.training else self.rnn(inputs)
        return self.head(outputs[:, -1] if self.answers == 1 else outputs[:, -self.answers :])

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """In forward order, each input weight and the head's, and a function that computes the sums it makes of its inputs.
        Recurrent weights have none of their own."""
        state = inputs
        for layer in range(self.depth):
            weight = weights_of(self.rnn, layer).weight_ih
            yield weight, lambda state=state, weight=weight: F.linear(state, weight)
            state = one_layer(self.rnn, layer)(state)[0] if isinstance(self.rnn, nn.RNN) else self.rnn.through(layer, state)
        yield self.head.weight, lambda: self.head(state[:, -1])


class RecurrentStack(nn.Module):
    """nn.RNN with any activation, norms and residuals; its parameters have the names and starting values of nn.RNN's.

    (batch, time steps, features) -> the last layer's states (batch, time steps, width), and the last of them.
    A norm before the activation stands inside the recurrence. Residual and a norm after the activation stand between
    the layers: what a layer hands upward, not what it remembers.
    """

    def __init__(self, features: int, knobs: Model) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[knobs.activation]
        self.depth, self.residual, self.norm_first = knobs.depth, knobs.residual, knobs.norm_position == "pre"
        bound = 1 / math.sqrt(knobs.width)
        for layer in range(knobs.depth):
            inputs = features if layer == 0 else knobs.width
            shapes = (knobs.width, inputs), (knobs.width, knobs.width), (knobs.width,), (knobs.width,)
            for name, shape in zip(Weights._fields, shapes, strict=True):
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))
            self.add_module(f"norm_l{layer}", NORMS[knobs.norm](knobs.width))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        state = inputs
        for layer in range(self.depth):
            state = self.through(layer, state)
        return state, state[:, -1]

    def through(self, layer: int, inputs: Tensor) -> Tensor:
        """What one layer hands upward."""
        norm = getattr(self, f"norm_l{layer}")
        outputs = run_layer(inputs, weights_of(self, layer), self.activation, norm if self.norm_first else None)
        if self.residual and layer > 0:
            outputs = outputs + inputs
        if norm is not None and not self.norm_first:
            outputs = norm(outputs.flatten(0, 1)).view_as(outputs)
        return outputs


class Weights(NamedTuple):
    """The parameters of one recurrent layer, under the names that nn.RNN has for them."""

    weight_ih: nn.Parameter  # (width, features)
    weight_hh: nn.Parameter  # (width, width)
    bias_ih: nn.Parameter  # (width,)
    bias_hh: nn.Parameter  # (width,)


def weights_of(rnn: nn.Module, layer: int) -> Weights:
    return Weights(*(getattr(rnn, f"{name}_l{layer}") for name in Weights._fields))


def run_layer(inputs: Tensor, weights: Weights, activation: Callable[[Tensor], Tensor], norm: nn.Module | None = None) -> Tensor:
    """(batch, time steps, features) -> states (batch, time steps, width), from a state of zeros:
    h_t = activation(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh), as in the documentation of nn.RNN."""
    from_input = F.linear(inputs, weights.weight_ih, weights.bias_ih)
    state = from_input.new_zeros(len(inputs), len(weights.weight_hh))
    states = []
    for at in range(inputs.shape[1]):
        total = from_input[:, at] + F.linear(state, weights.weight_hh, weights.bias_hh)
        state = activation(total if norm is None else norm(total))
        states.append(state)
    return torch.stack(states, 1)


def one_layer(recurrent: nn.RNNBase, layer: int) -> nn.RNNBase:
    """A layer of a stack as a network by itself, which shares its parameters."""
    weights = weights_of(recurrent, layer)
    kind: dict[str, Any] = {"nonlinearity": recurrent.nonlinearity} if isinstance(recurrent, nn.RNN) else {}
    # On the meta device no weights are drawn.
    alone = type(recurrent)(weights.weight_ih.shape[1], recurrent.hidden_size, batch_first=True, device="meta", **kind)
    for name, weight in zip(Weights._fields, weights, strict=True):
        setattr(alone, f"{name}_l0", weight)
    return alone
