"""A fast median of few numbers: rules take it often."""

from __future__ import annotations

import math

import numpy as np


def median(values: np.ndarray) -> float:
    """Return np.median of float64, (values,), in a tenth of its time. NaN where a value is NaN; there must be
    values."""
    ordered = values.copy()
    ordered.sort()  # NaN last
    middle = (ordered.item((ordered.size - 1) // 2) + ordered.item(ordered.size // 2)) / 2
    return middle if ordered.item(-1) == ordered.item(-1) else math.nan
