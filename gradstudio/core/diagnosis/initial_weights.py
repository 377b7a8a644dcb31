"""How the weights were initialized, as far as the rows show."""

from __future__ import annotations

from gradstudio.core.history import History


def weights(history: History) -> list[int]:
    """Return the indices of the weights among the layers, without biases and norms."""
    return [index for index, layer in enumerate(history.layers) if layer.is_weight]


def all_zero(history: History) -> bool:
    """Return whether all weights were 0 before the first update. No norm, clipping or rate fixes that: the units of a
    layer are identical and remain so."""
    norms = history.layer_metric("weight_norm", 0, 1)[0][weights(history)]
    return len(norms) > 0 and not norms.any()
