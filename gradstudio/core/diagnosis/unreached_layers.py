"""The layers that the loss does not depend on. Their gradient is 0 because there is none: it neither vanished, nor
died, nor underflowed."""

from __future__ import annotations

from gradstudio.core.history import LOOK_EVERY, History


def unused_layers(history: History) -> frozenset[int]:
    """Return the indices of the layers that received no gradient at the latest step that recorded it, and whose
    gradient was exactly 0 at each of the last LOOK_EVERY steps. Empty if that was never recorded."""
    names = history.unused[-1][1] if history.unused else ()
    if not names:
        return frozenset()
    norms = history.layer_metric("grad_norm", len(history) - LOOK_EVERY)
    at = (index for index, layer in enumerate(history.layers) if layer.name in names)
    return frozenset(index for index in at if not norms[:, index].any())
