"""Spikes of the gradient norm, relative to the steps before: how far a norm is above their median."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable

from gradstudio.core.text import number

DEVIATIONS = 6.0  # above the median, from which a norm is a spike: OLMo 2 takes 6 too
WINDOW, LEAST = 128, 20  # number of steps considered, and how many there must be
SMALLEST = 0.05  # deviation as a share of the median: for nearly constant norms, a small rise is no spike


class Spikes:
    """Remembers the norms of the steps that made their update."""

    def __init__(self, norms: Iterable[float] = ()) -> None:
        self.norms = deque[float](norms, maxlen=WINDOW)

    def look(self, norm: float, deviations: float = DEVIATIONS) -> str:
        """Return the text about a spike; "" if the norm is not one, and is remembered."""
        if not math.isfinite(norm):
            return ""
        if len(self.norms) >= LEAST:
            median = statistics.median(self.norms)
            spread = 1.4826 * statistics.median([abs(each - median) for each in self.norms])  # of a normal distribution
            deviation = max(spread, SMALLEST * median)
            if deviation and norm > median + deviations * deviation:
                times = number((norm - median) / deviation)
                return f"gradient norm {number(norm)}, {times} deviations above its median of {number(median)}"
        self.norms.append(norm)
        return ""
