"""Schemes that draw the weights at step 0, by their name in model.init.

Every scheme draws one weight in place: (outputs, inputs) or (outputs, inputs, 3, 3), with all gates of an LSTM or GRU
as one. `gain` is model.init_gain. A layer whose sums go through model.activation also has its own gain, which
compensates for the activation; it is 1 for all others (recurrent weights, gates, attention, the head)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models import Network, in_head, named_parameters, role
from gradstudio.engine.models.parametrization import shrink_head
from gradstudio.engine.models.residuals import scale_branches

NORMAL_STD = 0.02  # as in BERT and GPT-2
PLAIN = ("recurrent", "linear")  # in place of an activation, if the scheme's own gain is 1
ACTIVATED = {"hidden", "rnn", "expand"}  # the modules whose sums go through model.activation
# Each compensates for the scale that an activation removes from a layer, as in torch.nn.init.calculate_gain. gelu and
# silu count as relu.
OWN_GAINS = {
    "relu": math.sqrt(2),
    "leaky_relu": math.sqrt(2),
    "gelu": math.sqrt(2),
    "silu": math.sqrt(2),
    "tanh": 5 / 3,
    "sigmoid": 1.0,
}

Scheme = Callable[[Tensor, str, float], object]


def default(weight: Tensor, activation: str, gain: float) -> None:
    """Keep torch's own initialization: uniform within 1/sqrt(inputs), in recurrent networks within 1/sqrt(width)."""
    weight.mul_(gain)


def xavier(weight: Tensor, activation: str, gain: float) -> None:
    """Draw uniform numbers of variance 2 / (inputs + outputs) (Glorot and Bengio 2010). The layer's own gain is not
    used."""
    nn.init.xavier_uniform_(weight, gain)


def he(weight: Tensor, activation: str, gain: float) -> None:
    """Draw normal numbers of variance 2 / inputs for a hidden layer, whatever its activation, and 1 / inputs otherwise
    (He 2015)."""
    nn.init.kaiming_normal_(weight, nonlinearity="linear" if activation in PLAIN else "relu")
    weight.mul_(gain)


def orthogonal(weight: Tensor, activation: str, gain: float) -> None:
    """Draw orthogonal rows or columns, of length gain times torch's gain for the activation (Saxe 2013): sqrt 2 for
    relu and its relatives, 5/3 for tanh."""
    nn.init.orthogonal_(weight, OWN_GAINS.get(activation, 1.0) * gain)


def zeros(weight: Tensor, activation: str, gain: float) -> None:
    """Set every weight to 0: all units of a layer stay identical."""
    weight.zero_()


def normal(weight: Tensor, activation: str, gain: float) -> None:
    """Draw normal numbers of deviation 0.02 whatever the layer's size, as for large language models."""
    nn.init.normal_(weight, std=NORMAL_STD * gain)


def orthonormal(weight: Tensor, activation: str, gain: float) -> None:
    """Draw the starting point of lsuv: orthogonal with length 1. It does not scale recurrent weights; their length is
    `gain`."""
    nn.init.orthogonal_(weight, gain if activation == "recurrent" else 1.0)


INITIALIZERS: dict[str, Scheme] = {
    "default": default,
    "xavier": xavier,
    "he": he,
    "orthogonal": orthogonal,
    "lsuv": orthonormal,
    "zeros": zeros,
    "normal": normal,
}


@torch.no_grad()
def initialize(model: Network, knobs: Model, sample: Tensor) -> None:
    """Draw the weights and set the biases of a fresh model, on the CPU. `sample` is a batch of inputs, which only lsuv
    uses. Norm layers stay as torch creates them, and so do the factors of residuals."""
    for name, parameter in named_parameters(model):
        kind = role(name)
        if kind == "bias":
            _set_bias(name, parameter, knobs)
        elif kind not in ("norm", "factor"):
            INITIALIZERS[knobs.init](parameter, activation_after(name, knobs), knobs.init_gain)
    if knobs.init == "lsuv":
        unit_variance(model, sample, knobs.init_gain)
    scale_branches(named_parameters(model), knobs)
    shrink_head(named_parameters(model), knobs)


@torch.no_grad()
def unit_variance(
    model: Network, sample: Tensor, deviation: float = 1.0, tolerance: float = 0.1, tries: int = 10
) -> None:
    """Layer-sequential unit variance (Mishkin and Matas 2015): layer by layer, divide the weights by the deviation of
    their sums over one batch until it is within the tolerance. Sums that do not vary at all are left unchanged."""
    model.eval()
    for weight, sums in model.sums(sample):
        for _ in range(tries):
            measured = sums().std().item() / deviation if deviation else 0.0
            if measured == 0 or not math.isfinite(measured) or abs(measured - 1) <= tolerance:
                break
            weight.div_(measured + 1e-8)
    model.train()


def activation_after(name: str, knobs: Model) -> str:
    """Return what follows the sums of the weight with this name: model.activation, or one of PLAIN."""
    if role(name) == "recurrent":
        return "recurrent"
    return knobs.activation if ACTIVATED.intersection(name.split(".")) else "linear"


def _set_bias(name: str, bias: Tensor, knobs: Model) -> None:
    if knobs.init != "default":
        bias.zero_()
    # A recurrent layer adds two biases; only one is set, so that their sum is the requested value.
    if not in_head(name) and "bias_hh" not in name:
        bias.add_(knobs.initial_bias)
