"""The gradient of a recurrent network along the sequence that it reads, at one step."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.row import Layer


@dataclass(frozen=True, slots=True)
class TimeSteps:
    """`norms` are the L2 norms of the derivative of the loss with respect to the state after each time step, in the
    last layer of the recurrent `module`, over the whole batch and in float32."""

    step: int
    module: str
    norms: tuple[float, ...]


def recurs(layers: tuple[Layer, ...]) -> bool:
    """Return whether a model with these layers reads sequences step by step."""
    return any(layer.role == "recurrent" for layer in layers)
