"""Models: the networks, one per file, by their name in model.kind, and their weight initialization (initialization.py).
Data and training are elsewhere.
May use core, engine/shape.py and engine/torch_internals; never engine/step, engine/gauges or engine/trainer.py."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal

from torch import nn

from gradstudio.core.row import Layer
from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.cnn import CNN
from gradstudio.engine.models.gan import GAN
from gradstudio.engine.models.gated import GRU, LSTM, GatedNetwork
from gradstudio.engine.models.mlp import MLP
from gradstudio.engine.models.policy import Policy
from gradstudio.engine.models.rnn import RNN
from gradstudio.engine.models.transformer import Transformer
from gradstudio.engine.shape import Shape

Network = MLP | RNN | GatedNetwork | CNN | Transformer | GAN
MODELS: dict[str, Callable[[Model, Shape], Network]] = {
    "mlp": MLP,
    "rnn": RNN,
    "lstm": LSTM,
    "gru": GRU,
    "cnn": CNN,
    "transformer": Transformer,
    "gan": GAN,
    "policy": Policy,
}


def named_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return every parameter tensor of a model with its name, in forward order."""
    return sorted(model.named_parameters(), key=lambda item: _place(item[0]))


def layers(model: nn.Module) -> tuple[Layer, ...]:
    """Return a description of each tensor of named_parameters."""
    return tuple(Layer(name, role(name), parameter.numel()) for name, parameter in named_parameters(model))


def role(name: str) -> Literal["weight", "recurrent", "bias", "norm", "factor"]:
    """Return the role of a parameter with this name."""
    if "norm" in name:
        return "norm"
    if "bias" in name:
        return "bias"
    if name.endswith(".factor"):
        return "factor"
    return "recurrent" if "weight_hh" in name else "weight"


def _place(name: str) -> float:
    """Return the layer of a recurrent parameter (weight_ih_l3, norm_l3.weight). All others keep their order, the head
    last."""
    match = re.search(r"_l(\d+)", name)
    return int(match[1]) if match else math.inf


def in_head(name: str) -> bool:
    """Return whether the parameter with this name is part of an output layer."""
    return "head" in name.split(".")
