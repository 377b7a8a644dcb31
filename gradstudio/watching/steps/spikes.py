"""Spikes of the gradient norm, by the steps before: how far a norm stands above their median."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from gradstudio.core.text import number

DEVIATIONS = 6.0  # above the median, from which a norm is a spike: OLMo 2 takes 6 too
WINDOW, LEAST = 128, 20  # steps that are looked at, and how many there must be
SMALLEST = 0.05  # deviation as a share of the median: norms that hardly change make no spike of a little more


class Spikes:
    """Remembers the norms of the steps whose update was made."""

    def __init__(self) -> None:
        self._norms = deque[float](maxlen=WINDOW)

    def look(self, norm: float) -> str:
        """Return what is to be said of a spike; "" where the norm is none, and is remembered."""
        if len(self._norms) >= LEAST and math.isfinite(norm):
            median = float(np.median(self._norms))
            spread = 1.4826 * float(np.median(np.abs(np.array(self._norms) - median)))  # of a normal distribution
            deviation = max(spread, SMALLEST * median)
            if deviation and norm > median + DEVIATIONS * deviation:
                times = number((norm - median) / deviation)
                return f"gradient norm {number(norm)}, {times} deviations above its median of {number(median)}"
        if math.isfinite(norm):
            self._norms.append(norm)
        return ""
