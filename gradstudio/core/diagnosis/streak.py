"""The first step of a streak: rules look every LOOK_EVERY steps, and what they see may have begun long before."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradstudio.core.history import LOOK_EVERY, History


class Streak(NamedTuple):
    """The latest consecutive steps at which a condition holds for some layers. Each row is read once, so that the cost
    of a look does not grow with the run."""

    layers: tuple[int, ...] = ()
    first: int = 0  # number of rows up to the latest one in which it does not hold
    seen: int = 0  # rows

    def at(
        self, history: History, metric: str, layers: tuple[int, ...], holds: Callable[[np.ndarray], NDArray[np.bool_]]
    ) -> Streak:
        """Return the streak after the latest row. `holds` maps a metric of these layers, (rows, layers), to the rows in
        which the condition is true."""
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
