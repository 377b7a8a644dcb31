"""Buffers for rows that wait to be recorded: how many there may be, and the arrays for their layers."""

from __future__ import annotations

from sys import getrefcount

import numpy as np

from gradstudio.core.history import LAYER_METRICS

# Those of a second at most: the library's thread then records them, many at a time, which takes half as long as a few
# at a time between two steps of the script, and leaves the script its caches.
MOST_ROWS = 1024
MOST_BYTES = 4 << 20  # of their layers


def most_waiting(layers: int) -> int:
    """Return how many rows with this many layers may wait."""
    return max(1, min(MOST_ROWS, MOST_BYTES // (4 * len(LAYER_METRICS) * max(1, layers))))


class Spare:
    """Arrays (metrics, layers), float32, each reused once it is no longer referenced. Allocating fresh memory at every
    step takes ten times as long."""

    def __init__(self, layers: int) -> None:
        self._shape, self._next = (len(LAYER_METRICS), layers), 0
        self._most = most_waiting(layers) + 8
        self._references = 0  # to an unused array, as this version of Python counts them
        self._arrays: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        """Return an array that is not used elsewhere, with arbitrary content."""
        arrays, place = self._arrays, self._next % self._most
        self._next = place + 1
        if fresh := place == len(arrays):
            arrays.append(np.empty(self._shape, np.float32))
        values = arrays[place]
        references = getrefcount(values)
        if fresh:
            self._references = references
        elif references > self._references:
            values = arrays[place] = np.empty(self._shape, np.float32)
        return values
