"""How the weights were drawn, as far as the rows tell."""

from __future__ import annotations

from gradstudio.core.history import History


def weights(history: History) -> list[int]:
    """Return the places of the weights among the layers, without biases and norms."""
    return [index for index, layer in enumerate(history.layers) if layer.is_weight]


def all_zero(history: History) -> bool:
    """Return whether all weights were 0 before the first update. No norm, clipping or rate heals that: the units of a
    layer are alike and stay so."""
    norms = history.layer_metric("weight_norm", 0, 1)[0][weights(history)]
    return len(norms) > 0 and not norms.any()
