"""The networks, by the name that model.kind gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal

from torch import nn

from gradstudio.core.experiment import Model
from gradstudio.core.history import Layer
from gradstudio.engine.models.mlp import MLP
from gradstudio.engine.models.rnn import RNN

# Each takes the knobs, the time steps and features of an input, and the number of classes.
MODELS: dict[str, Callable[[Model, int, int, int], MLP | RNN]] = {"mlp": MLP, "rnn": RNN}


def named_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Every parameter tensor of a model with its name, in forward order."""
    return sorted(model.named_parameters(), key=lambda item: _place(item[0]))


def layers(model: nn.Module) -> tuple[Layer, ...]:
    """What named_parameters holds, described."""
    return tuple(Layer(name, role(name), parameter.numel()) for name, parameter in named_parameters(model))


def role(name: str) -> Literal["weight", "recurrent", "bias", "norm"]:
    """What a parameter of this name does."""
    if "norm" in name:
        return "norm"
    if "bias" in name:
        return "bias"
    return "recurrent" if "weight_hh" in name else "weight"


def _place(name: str) -> float:
    """Where a recurrent layer's parameter (weight_ih_l3, norm_l3.weight) stands. All others stand in order as they are, the head last."""
    found = re.search(r"_l(\d+)", name)
    return int(found[1]) if found else math.inf
