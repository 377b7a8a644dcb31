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
        self.flags = 0  # of all bins
        self.extremes = (np.inf, -np.inf)  # least and greatest finite value so far

    def append(self, values: np.ndarray) -> None:
        """Take in the values of the next steps, (n,)."""
        while self.count + len(values) > self._capacity * self.width:
            self._merge()
        if not len(values):
            return
        first, self.count = self.count, self.count + len(values)
        values, flags, least, greatest = self._sort_out(values)
        into = slice(first // self.width, self.used)
        if self.width == 1:
            self._low[into], self._high[into], self._flags[into] = values, values, flags
            return
        if into.stop - into.start > 1:
            starts = np.arange(into.start, into.stop) * self.width - first
            starts[0] = 0
            least, greatest = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
            flags = np.bitwise_or.reduceat(flags, starts)
        else:
            flags = np.bitwise_or.reduce(flags)
        self._low[into] = np.fmin(self._low[into], least)
        self._high[into] = np.fmax(self._high[into], greatest)
        self._flags[into] |= flags

    def curve(self, first: int = 0, last: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of the bins first to last to draw, one point a step, or two a bin: its least and its greatest value."""
        last = self.used if last is None else min(last, self.used)
        if self.width == 1:
            return self.start + np.arange(first, last, dtype=float), self._high[first:last]
        steps = self.start + np.arange(2 * first, 2 * last) * (self.width / 2)
        values = np.empty(2 * (last - first))
        values[0::2], values[1::2] = self._low[first:last], self._high[first:last]
        return steps, values

    def flagged(self, flag: int) -> np.ndarray:
        """The first step of every bin with a NaN, Inf or zero in it."""
        if not self.flags & flag:
            return np.empty(0)
        return self.start + np.flatnonzero(self._flags[: self.used] & flag).astype(float) * self.width

    def range(self, first: float, last: float, *, positive: bool) -> tuple[float, float] | None:
        """Least and greatest finite value (above 0 where `positive`) of the bins between two steps; None without any."""
        bins = slice(max(int((first - self.start) // self.width), 0), max(int((last - self.start) // self.width) + 1, 0))
        low, high = self._low[: self.used][bins], self._high[: self.used][bins]
        if positive:
            low, high = np.where(low > 0, low, np.where(high > 0, high, np.nan)), np.where(high > 0, high, np.nan)
        if not np.isfinite(high).any():
            return None
        return float(np.nanmin(low)), float(np.nanmax(high))

    def typical(self, share: float) -> float:
        """The value that this share of all bins stay below at their greatest; NaN without any."""
        high = self._high[: self.used]
        high = high[np.isfinite(high)]
        index = int(share * (len(high) - 1))
        return float(np.partition(high, index)[index]) if len(high) else float("nan")

    @property
    def used(self) -> int:
        """Bins with a value in them."""
        return -(-self.count // self.width)

    def _sort_out(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
        """The values, NaN where they are not finite; their flags; the least and the greatest of them."""
        flags = (values == 0).view(np.uint8) * np.uint8(ZERO)
        if not np.isfinite(values).all():
            nan, inf = np.isnan(values), np.isinf(values)
            flags |= (nan * NAN + inf * INF).astype(np.uint8)
            values = np.where(nan | inf, np.nan, values)
        self.flags |= int(np.bitwise_or.reduce(flags))
        least, greatest = float(np.fmin.reduce(values)), float(np.fmax.reduce(values))
        if least < self.extremes[0] or greatest > self.extremes[1]:
            self.extremes = (min(self.extremes[0], least), max(self.extremes[1], greatest))
        return values, flags, least, greatest

    def _merge(self) -> None:
        half = self._capacity // 2
        self._low[:half], self._low[half:] = np.fmin(self._low[0::2], self._low[1::2]), np.nan
        self._high[:half], self._high[half:] = np.fmax(self._high[0::2], self._high[1::2]), np.nan
        self._flags[:half], self._flags[half:] = self._flags[0::2] | self._flags[1::2], 0
        self.width *= 2
