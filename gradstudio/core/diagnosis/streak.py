"""The first step of a streak: rules look every LOOK_EVERY steps, and what they see may have begun long before."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradstudio.core.history import LOOK_EVERY, History


class Streak(NamedTuple):
    """The latest steps in a row at which something holds of some layers. A row is looked at once, so that a look takes
    no longer the longer the run is."""

    layers: tuple[int, ...] = ()
    first: int = 0  # the number of steps where it does not hold at the latest
    seen: int = 0  # rows

    def at(
        self, history: History, metric: str, layers: tuple[int, ...], holds: Callable[[np.ndarray], NDArray[np.bool_]]
    ) -> Streak:
        """Return the streak as it is after the latest row, where `holds` tells of a metric of these layers, (rows,
        layers), in which rows it does."""
        seen = self.seen if layers == self.layers and self.seen <= len(history) else 0
        stop = len(history)
        while stop > seen:
            start = max(stop - LOOK_EVERY, seen)
            broken = np.flatnonzero(~holds(history.layer_metric(metric, start, stop)[:, layers]))
            if len(broken):
                return Streak(layers, start + int(broken[-1]) + 1, len(history))
            stop = start
        return Streak(layers, self.first if seen else 0, len(history))


NO_STREAK = Streak()  # before the first look
