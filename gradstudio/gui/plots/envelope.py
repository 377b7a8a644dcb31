"""A curve of any length as at most a few thousand points: the least and the greatest value of each bin of steps.

It is kept as rows arrive and never computed anew: when the bins are full, neighbours are merged and each covers twice
the steps. NaN, Inf and zero leave a flag in their bin, so that none is lost to drawing.
"""

from __future__ import annotations

import numpy as np

NAN, INF, ZERO = 1, 2, 4


class Envelope:
    def __init__(self, capacity: int = 2048, start: int = 0) -> None:
        self.start = start
        self.width = 1  # steps in a bin
        self.count = 0  # values taken in
        self._capacity = capacity
        self._low = np.full(capacity, np.nan)
        self._high = np.full(capacity, np.nan)
        self._flags = np.zeros(capacity, np.uint8)

    def append(self, values: np.ndarray) -> None:
        """Take in the values of the next steps, (n,)."""
        while self.count + len(values) > self._capacity * self.width:
            self._merge()
        if not len(values):
            return
        bins = (self.count + np.arange(len(values))) // self.width
        starts = np.flatnonzero(np.diff(bins, prepend=-1))
        into = bins[starts]
        nan, inf = np.isnan(values), np.isinf(values)
        flags = (nan * NAN + inf * INF + (values == 0) * ZERO).astype(np.uint8)
        finite = np.where(nan | inf, np.nan, values)
        self._low[into] = np.fmin(self._low[into], np.fmin.reduceat(finite, starts))
        self._high[into] = np.fmax(self._high[into], np.fmax.reduceat(finite, starts))
        self._flags[into] |= np.bitwise_or.reduceat(flags, starts)
        self.count += len(values)

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values to draw, one point a step, or two a bin: its least and its greatest value."""
        used = self._used
        if self.width == 1:
            return self.start + np.arange(used, dtype=float), self._high[:used]
        steps = self.start + np.arange(2 * used) * (self.width / 2)
        values = np.empty(2 * used)
        values[0::2], values[1::2] = self._low[:used], self._high[:used]
        return steps, values

    def flagged(self, flag: int) -> np.ndarray:
        """The first step of every bin with a NaN, Inf or zero in it."""
        return self.start + np.flatnonzero(self._flags[: self._used] & flag).astype(float) * self.width

    def range(self, first: float, last: float, *, positive: bool) -> tuple[float, float] | None:
        """Least and greatest finite value (above 0 where `positive`) of the bins between two steps; None without any."""
        bins = slice(max(int((first - self.start) // self.width), 0), max(int((last - self.start) // self.width) + 1, 0))
        low, high = self._low[: self._used][bins], self._high[: self._used][bins]
        if positive:
            low, high = np.where(low > 0, low, np.where(high > 0, high, np.nan)), np.where(high > 0, high, np.nan)
        if not np.isfinite(high).any():
            return None
        return float(np.nanmin(low)), float(np.nanmax(high))

    def typical(self, share: float) -> float:
        """The value that this share of all bins stay below at their greatest; NaN without any."""
        high = self._high[: self._used]
        high = high[np.isfinite(high)]
        index = int(share * (len(high) - 1))
        return float(np.partition(high, index)[index]) if len(high) else float("nan")

    @property
    def _used(self) -> int:
        return -(-self.count // self.width)

    def _merge(self) -> None:
        half = self._capacity // 2
        self._low[:half], self._low[half:] = np.fmin(self._low[0::2], self._low[1::2]), np.nan
        self._high[:half], self._high[half:] = np.fmax(self._high[0::2], self._high[1::2]), np.nan
        self._flags[:half], self._flags[half:] = self._flags[0::2] | self._flags[1::2], 0
        self.width *= 2
