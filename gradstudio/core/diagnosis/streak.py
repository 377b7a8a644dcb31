"""The first step of a streak: rules look every LOOK_EVERY steps, and what they see may have begun long before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gradstudio.core.history import LOOK_EVERY, History


def streak(history: History, metric: str, holds: Callable[[np.ndarray], NDArray[np.bool_]]) -> int:
    """Return the first of the latest steps in a row at which a metric of the layers, (rows, layers), holds; the number
    of steps where it does not hold at the latest."""
    stop = len(history)
    while stop:
        start = max(stop - LOOK_EVERY, 0)
        broken = np.flatnonzero(~holds(history.layer_metric(metric, start, stop)))
        if len(broken):
            return start + int(broken[-1]) + 1
        stop = start
    return 0
