"""The median as rules take it: often, and of few numbers."""

from __future__ import annotations

import numpy as np


def median(values: np.ndarray) -> np.ndarray:
    """np.median(values, axis=0) in a fifth of its time: NaN where there is one. There must be values."""
    ordered = np.sort(values, axis=0)  # NaN last
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return np.where(np.isnan(ordered[-1]), np.nan, middle)
