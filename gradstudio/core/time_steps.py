"""The gradient of a recurrent network along the sequence that it reads, at one step or at many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.row import Layer


@dataclass(frozen=True, slots=True)
class TimeSteps:
    """`norms` are the L2 norms of the derivative of the loss with respect to the state after each time step, in the
    last layer of the recurrent `module`, over the whole batch and in float32."""

    step: int
    module: str
    norms: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TimeMap:
    """The norms of `TimeSteps` at several `steps`, in order: float32, (steps, time steps)."""

    steps: np.ndarray
    norms: np.ndarray


def recurs(layers: tuple[Layer, ...]) -> bool:
    """Return whether a model with these layers reads sequences step by step."""
    return any(layer.role == "recurrent" for layer in layers)
