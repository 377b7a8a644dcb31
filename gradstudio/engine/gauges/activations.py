"""Samples of the activations: their mean and deviation, how many outputs are saturated, how many units are dead.

A sample takes one more forward pass, without gradient, that leaves no trace. It costs about a step, so it is taken
every history.SAMPLE_EVERY steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.row import Activation
from gradstudio.engine.models.batch_norms import freeze_statistics
from gradstudio.engine.models.hidden_stack import HiddenBase
from gradstudio.engine.models.rnn import RecurrentStack, one_layer
from gradstudio.engine.models.transformer import Expansion

# Outputs beyond these have a slope below 2 % of its largest value. For a sigmoid that is at sums beyond 5, where
# DeepDiagnosis (ICSE 2022) calls a unit saturated; for a tanh beyond 2.6. The states of LSTM and GRU count as tanh.
_SATURATED = {"tanh": (-0.99, 0.99), "sigmoid": (0.005, 0.995)}
# A unit is dead if none of its sums in the batch is above this. The slope of a relu is 0 there, that of a gelu or silu
# below about 1e-3.
_DEAD_BELOW = {"relu": 0.0, "gelu": -4.0, "silu": -10.0}


class _LayerOutput(NamedTuple):
    layer: str
    kind: str  # of activation
    sums: Tensor | None  # (..., units); None if torch does not expose them
    outputs: Tensor


@torch.no_grad()
def sample(model: nn.Module, activation: str, inputs: Tensor, counted: Tensor | None = None) -> tuple[Activation, ...]:
    """Measure every layer whose outputs go through an activation, in forward order. A network that is used several
    times in a pass is measured the first time. `counted` says which of the rows (batch x time steps,) of a network that
    answers each time step are measured; the others are padding."""
    seen: list[_LayerOutput] = []
    with freeze_statistics(model), _watch_activations(model, activation, seen):
        model(inputs)
    first = {each.layer: each for each in reversed(seen)}
    return _measure([first[each.layer] for each in seen if first[each.layer] is each], counted)


@contextmanager
def _watch_activations(model: nn.Module, kind: str, seen: list[_LayerOutput]) -> Iterator[None]:
    """Record the inputs and outputs of every activation in this context."""
    undo: list[Callable[[], object]] = []
    for name, module in model.named_modules():
        if isinstance(module, (HiddenBase, Expansion)):
            layer = f"{name}.weight" if isinstance(module, HiddenBase) else f"{name}.expand.weight"
            function = module.activation
            module.activation = partial(
                _noting, seen, layer, kind, 1 if isinstance(module, nn.Conv2d) else -1, function
            )
            undo.append(partial(setattr, module, "activation", function))
        elif isinstance(module, (nn.RNNBase, RecurrentStack)):
            undo.append(module.register_forward_hook(partial(_note_states, seen, name, kind)).remove)
    try:
        yield
    finally:
        for take_back in undo:
            take_back()


def _noting(
    seen: list[_LayerOutput], layer: str, kind: str, units: int, function: Callable[[Tensor], Tensor], sums: Tensor
) -> Tensor:
    outputs = function(sums)
    seen.append(_LayerOutput(layer, kind, sums.movedim(units, -1), outputs.movedim(units, -1)))
    return outputs


def _note_states(
    seen: list[_LayerOutput],
    name: str,
    kind: str,
    module: nn.RNNBase | RecurrentStack,
    tensors: tuple[Tensor, ...],
    made: tuple[Tensor, ...],
) -> None:
    """Record the states of a recurrent network, layer by layer. This hook must return None: torch would use its return
    value as the outputs."""
    layers = module.num_layers if isinstance(module, nn.RNNBase) else module.depth
    kind = "tanh" if isinstance(module, (nn.LSTM, nn.GRU)) else kind
    state = tensors[0]
    for layer in range(layers):
        if layer == layers - 1:
            state = made[0]
        else:
            state = (
                one_layer(module, layer)(state)[0] if isinstance(module, nn.RNNBase) else module.through(layer, state)
            )
        seen.append(_LayerOutput(f"{name}.weight_ih_l{layer}", kind, None, state))


def _measure(seen: list[_LayerOutput], counted: Tensor | None) -> tuple[Activation, ...]:
    """Measure layers of one shape together: many small operations would cost more than the pass."""
    shapes: dict[tuple, list[int]] = {}
    for index, each in enumerate(seen):
        shapes.setdefault((each.kind, each.sums is None, each.outputs.dtype, each.outputs.shape), []).append(index)
    measured: dict[int, Activation] = {}
    for (kind, without_sums, *_), places in shapes.items():
        rows = slice(None) if counted is None else counted
        outputs = torch.stack([seen[place].outputs for place in places]).float().flatten(1, -2)  # (layers, rows, units)
        outputs = outputs[:, rows]
        std, mean = torch.std_mean(outputs, (1, 2), correction=0)
        saturated = dead = torch.zeros_like(mean)
        if kind in _SATURATED:
            low, high = _SATURATED[kind]
            saturated = ((outputs < low) | (outputs > high)).float().mean((1, 2))
        if kind in _DEAD_BELOW and not (without_sums and kind != "relu"):
            sums = (
                outputs
                if kind == "relu"
                else torch.stack([sums for place in places if (sums := seen[place].sums) is not None]).flatten(1, -2)[
                    :, rows
                ]
            )
            dead = (sums.amax(1) <= _DEAD_BELOW[kind]).float().mean(1)
        for place, values in zip(places, torch.stack([mean, std, saturated, dead], 1).tolist(), strict=True):
            measured[place] = Activation(seen[place].layer, *(float(f"{value:.4g}") for value in values))
    return tuple(measured[index] for index in range(len(seen)))
