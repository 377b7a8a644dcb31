"""The median as rules take it: often, and of few numbers."""

from __future__ import annotations

import math

import numpy as np


def median(values: np.ndarray) -> float:
    """np.median of float64, (values,), in a tenth of its time: NaN where there is one. There must be values."""
    ordered = values.copy()
    ordered.sort()  # NaN last
    middle = (ordered.item((ordered.size - 1) // 2) + ordered.item(ordered.size // 2)) / 2
    return middle if ordered.item(-1) == ordered.item(-1) else math.nan
