"""How high a y axis reaches over a curve with spikes: far enough for all but them, or what is learned beside a spike
would be a flat line."""

from __future__ import annotations

import numpy as np

REACH = 2.5  # times the height of nearly all of the curve; a value beyond leaves the plot
NEARLY_ALL = 0.95


def top(highs: np.ndarray, low: float, least: float) -> float:
    """Return the greatest value to show of a curve whose bins have these greatest values, in the units of the axis and
    in their order; NaN where a bin has none. The curve's beginning is always shown. `low` is the foot of the axis, and
    `least` the shortest that it is."""
    there = highs[np.isfinite(highs)]
    if not len(there):
        return low
    place = int(NEARLY_ALL * (len(there) - 1))
    usual = max(float(np.partition(there, place)[place]), float(there[0]))
    return float(there[there <= max(low + max(REACH * (usual - low), least), usual)].max())
