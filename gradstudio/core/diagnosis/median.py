"""A fast median of few numbers, which rules compute often, and its text form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gradstudio.core.text import number, plural
from gradstudio.core.unknown import known_mask


def median(values: np.ndarray) -> float:
    """Return np.median of float64, (values,), in a tenth of its time. NaN if any value is NaN; `values` must not be
    empty."""
    ordered = values.copy()
    ordered.sort()  # NaN last
    middle = (ordered.item((ordered.size - 1) // 2) + ordered.item(ordered.size // 2)) / 2
    return middle if ordered.item(-1) == ordered.item(-1) else math.nan


def median_text(values: np.ndarray, told: Callable[[float], str] = number) -> str:
    """Return the median of the finite values as text, with the number of non-finite ones; or what they are, if none is
    finite. Values that were not measured do not count."""
    values = values[known_mask(values)]
    if not len(values):
        return "not known"
    finite, nan = values[np.isfinite(values)], np.isnan(values)
    missing = len(values) - len(finite)
    what = "NaN" if nan.sum() == missing else "NaN or Inf" if nan.any() else "Inf"
    if not len(finite):
        return what
    left_out = f" (without {plural(missing, f'step of {what}', f'steps of {what}')})" if missing else ""
    return told(median(finite)) + left_out
