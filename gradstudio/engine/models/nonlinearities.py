"""Activations: the functions that hidden units apply to their sums, by their name in model.activation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,  # slope 0.01 below 0
    "gelu": F.gelu,
    "silu": F.silu,
}
