"""A recurrent network that reads a sequence step by step and answers after the last one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.checkpointing import run_checkpointed
from gradstudio.engine.models.mlp import NORMS
from gradstudio.engine.models.nonlinearities import ACTIVATIONS
from gradstudio.engine.models.residuals import Residual
from gradstudio.engine.shape import Shape


class RNN(nn.Module):
    """A recurrent network and a head: (batch, time steps, features) -> (batch, outputs), or (batch, answers, outputs).
    It is torch's own nn.RNN if that supports the knobs, and otherwise the same maths in a plain loop over time."""

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
        outputs, _ = run_checkpointed(self.rnn, inputs) if self.checkpointing and self.training else self.rnn(inputs)
        return self.head(outputs[:, -1] if self.answers == 1 else outputs[:, -self.answers :])

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """Yield each input weight, in forward order, and then that of the head, each with a function that computes the
        sums of its inputs. Recurrent weights have no sums of their own."""
        state = inputs
        for layer in range(self.depth):
            weight = weights_of(self.rnn, layer).weight_ih
            yield weight, lambda state=state, weight=weight: F.linear(state, weight)
            state = (
                one_layer(self.rnn, layer)(state)[0] if isinstance(self.rnn, nn.RNN) else self.rnn.through(layer, state)
            )
        yield self.head.weight, lambda: self.head(state[:, -1])


class RecurrentStack(nn.Module):
    """nn.RNN with any activation, norms and residuals: (batch, time steps, features) -> the states of the last layer,
    (batch, time steps, width), and the last of them. Its parameters have the names and initial values of nn.RNN's.

    A norm before the activation is inside the recurrence. A residual, and a norm after the activation, are between the
    layers: they change what a layer passes on, not what it remembers."""

    def __init__(self, features: int, knobs: Model) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[knobs.activation]
        self.depth, self.norm_first = knobs.depth, knobs.norm_position == "pre"
        bound = 1 / math.sqrt(knobs.width)
        for layer in range(knobs.depth):
            inputs = features if layer == 0 else knobs.width
            shapes = (knobs.width, inputs), (knobs.width, knobs.width), (knobs.width,), (knobs.width,)
            for name, shape in zip(Weights._fields, shapes, strict=True):
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))
            self.add_module(f"residual_l{layer}", Residual(knobs) if knobs.residual and layer > 0 else None)
            self.add_module(f"norm_l{layer}", NORMS[knobs.norm](knobs))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        state = inputs
        for layer in range(self.depth):
            state = self.through(layer, state)
        return state, state[:, -1]

    def through(self, layer: int, inputs: Tensor) -> Tensor:
        """Return the output of one layer for the next."""
        norm = getattr(self, f"norm_l{layer}")
        outputs = run_layer(inputs, weights_of(self, layer), self.activation, norm if self.norm_first else None)
        residual = getattr(self, f"residual_l{layer}")
        if residual is not None:
            outputs = residual(inputs, outputs)
        if norm is not None and not self.norm_first:
            outputs = norm(outputs.flatten(0, 1)).view_as(outputs)
        return outputs


class Weights(NamedTuple):
    """The parameters of one recurrent layer, by their names in nn.RNN."""

    weight_ih: nn.Parameter  # (width, features)
    weight_hh: nn.Parameter  # (width, width)
    bias_ih: nn.Parameter  # (width,)
    bias_hh: nn.Parameter  # (width,)


def weights_of(rnn: nn.Module, layer: int) -> Weights:
    """Return the parameters of one layer of a recurrent network."""
    return Weights(*(getattr(rnn, f"{name}_l{layer}") for name in Weights._fields))


def run_layer(
    inputs: Tensor, weights: Weights, activation: Callable[[Tensor], Tensor], norm: nn.Module | None = None
) -> Tensor:
    """Return the states (batch, time steps, width) for inputs (batch, time steps, features), starting from a state of
    0: h_t = activation(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh), as in the documentation of nn.RNN."""
    from_input = F.linear(inputs, weights.weight_ih, weights.bias_ih)
    state = from_input.new_zeros(len(inputs), len(weights.weight_hh))
    states = []
    for at in range(inputs.shape[1]):
        total = from_input[:, at] + F.linear(state, weights.weight_hh, weights.bias_hh)
        state = activation(total if norm is None else norm(total))
        states.append(state)
    return torch.stack(states, 1)


def one_layer(recurrent: nn.RNNBase, layer: int) -> nn.RNNBase:
    """Return one layer of a stack as a separate network that shares the layer's parameters."""
    weights = weights_of(recurrent, layer)
    kind = cast("Callable[..., nn.RNNBase]", type(recurrent))
    knobs: dict[str, Any] = {"nonlinearity": recurrent.nonlinearity} if isinstance(recurrent, nn.RNN) else {}
    # On the meta device no weights are drawn.
    alone = kind(weights.weight_ih.shape[1], recurrent.hidden_size, batch_first=True, device="meta", **knobs)
    for name, weight in zip(Weights._fields, weights, strict=True):
        setattr(alone, f"{name}_l0", weight)
    return alone
