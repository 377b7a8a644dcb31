"""What clipping allows to reach the optimizer, by the settings in force: what the norms of a step are held against."""

from __future__ import annotations

import math

from gradstudio.core.history import History, Settings


def largest(settings: Settings, history: History) -> float:
    """The largest L2 norm that this clipping leaves of any gradient; inf where that depends on the weights."""
    match settings.clipping:
        case "norm":
            return settings.limit
        case "per_layer":
            return settings.limit * math.sqrt(len(history.layers))
        case "value":
            return settings.limit * math.sqrt(sum(layer.size for layer in history.layers))
    return math.inf
