"""How high a y axis reaches over a curve with spikes: far enough for all but them, as otherwise what is learned beside
a spike would be a flat line."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NEARLY_ALL = 0.95
WORTH_IT = 1.5  # a spike is cut only if the axis would be this many times as long with it


class SpikeCut(NamedTuple):
    """The values that may leave a plot: those higher than `reach` times the height of nearly all of the curve. The axis
    is no shorter than `least`, in its units."""

    least: float
    reach: float


def top(highs: np.ndarray, low: float, cut: SpikeCut) -> float:
    """Return the maximum value to show of a curve whose bins have these maxima, in the units of the axis and in their
    order; NaN if a bin has none. The curve's beginning is always shown. `low` is the foot of the axis."""
    there = highs[np.isfinite(highs)]
    if not len(there):
        return low
    place = int(NEARLY_ALL * (len(there) - 1))
    usual = max(float(np.partition(there, place)[place]), float(there[0]))
    shown = float(there[there <= max(low + max(cut.reach * (usual - low), cut.least), usual)].max())
    greatest = float(there.max())
    return greatest if greatest - low <= WORTH_IT * max(shown - low, cut.least) else shown
