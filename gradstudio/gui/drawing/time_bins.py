"""Bins of a heatmap that are equally long in time, however long each step took."""

from __future__ import annotations

import math

import numpy as np

from gradstudio.core.jit import READ_ONLY, jit
from gradstudio.core.unknown import BITS, UNKNOWN
from gradstudio.gui.drawing.heatmap_image import merge_pairs

NARROWEST = 2.0**-14  # seconds of a bin at first


@jit(f"void({READ_ONLY.format('float32', 2)}, {READ_ONLY.format('float64', 1)}, float64, float32[:, ::1])")
def _take(values: np.ndarray, began: np.ndarray, width: float, bins: np.ndarray) -> None:
    """Put the values of steps, (steps, rows), into every bin that the step touches. `began` are the seconds at which
    each began and the last ended, (steps + 1,)."""
    steps, rows = values.shape
    for step in range(steps):
        first = min(int(began[step] / width), len(bins) - 1)
        last = min(max(math.ceil(began[step + 1] / width), first + 1), len(bins))
        for place in range(first, last):
            largest = bins[place]
            for row in range(rows):
                value = values[step, row]
                if np.float64(value).view(np.int64) == BITS:
                    continue
                nothing = np.float64(largest[row]).view(np.int64) == BITS
                if nothing or (not value <= largest[row] and not math.isnan(largest[row])):
                    largest[row] = value


class TimeBins:
    """The maximum of each bin, for every row, like LayerBins. `start` is the second of the run at which the first bin
    begins, and `width` the seconds of a bin."""

    def __init__(self, rows: int, capacity: int = 1024, start: float = 0.0) -> None:
        self.start, self.left_edge = start, start
        self.width = NARROWEST
        self.count = 0  # steps taken in
        self._reach = 0.0  # seconds from the start to the end of the last step
        self._values = np.full((capacity, rows), UNKNOWN, np.float32)

    def append(self, values: np.ndarray, began: np.ndarray) -> None:
        """Add the values of the next steps, (steps, rows); `began` are the seconds of the run at which each began and
        the last ended, (steps + 1,)."""
        if not len(values):
            return
        began = began - self.start
        while began[-1] > len(self._values) * self.width:
            half = len(self._values) // 2
            self._values[:half], self._values[half:] = merge_pairs(self._values), UNKNOWN
            self.width *= 2
        _take(values, began, self.width, self._values)
        self.count += len(values)
        self._reach = float(began[-1])

    @property
    def used(self) -> int:
        """Number of bins that have a value."""
        return min(max(math.ceil(self._reach / self.width), 1), len(self._values)) if self.count else 0

    @property
    def done(self) -> int:
        """Number of bins that will not change any more."""
        return min(int(self._reach / self.width), max(self.used - 1, 0))

    def picture(self, first: int = 0) -> np.ndarray:
        """Return the bins from `first` on, (bins, rows)."""
        return self._values[first : self.used]
