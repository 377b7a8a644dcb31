"""Curves of any length as at most a few thousand points: the minimum and the maximum of each bin of steps.

NaN, Inf and zero leave a flag in their bin, so that none is lost in drawing."""

from __future__ import annotations

import math

import numpy as np

from gradstudio.core.jit import READ_ONLY, jit
from gradstudio.core.unknown import BITS
from gradstudio.gui.drawing.bins import Bins

NAN, INF, ZERO = 1, 2, 4
CAPACITY = 2048  # bins, at most
PLACES = np.arange(2 * CAPACITY + 1)  # created once: np.arange would release the interpreter lock in every frame


@jit(
    f"void({READ_ONLY.format('float64', 2)}, int64, int64, int64, float64[:, ::1], float64[:, ::1], float64[:, ::1], "
    "uint8[:, ::1], uint8[::1])"
)
def _take(
    values: np.ndarray, count: int, width: int, changed: int, points: np.ndarray, positive: np.ndarray,
    ranges: np.ndarray,
    flags: np.ndarray, flagged: np.ndarray,
) -> None:  # fmt: skip
    """Put the values of the steps after `count`, (curves, steps), into bins of `width`. `positive` gets the points of
    the bins from `changed` on, NaN if they are not above 0; the other arrays are those of an Envelope."""
    curves, steps = values.shape
    for curve in range(curves):
        least, greatest = ranges[curve]
        for step in range(steps):
            value, place = values[curve, step], (count + step) // width
            if math.isfinite(value):
                flag = ZERO if value == 0 else 0
            elif math.isnan(value):
                flag = 0 if np.float64(value).view(np.int64) == BITS else NAN  # UNKNOWN is a gap
            else:
                flag = INF
            flags[curve, place] |= flag
            flagged[curve] |= flag
            if not math.isfinite(value):
                continue
            least, greatest = min(least, value), max(greatest, value)
            if not points[curve, 2 * place] <= value:  # or nothing is there yet, which is NaN
                points[curve, 2 * place] = value
            if not points[curve, 2 * place + 1] >= value:
                points[curve, 2 * place + 1] = value
        ranges[curve, 0], ranges[curve, 1] = least, greatest
        for point in range(2 * changed, 2 * ((count + steps - 1) // width + 1)):
            positive[curve, point] = points[curve, point] if points[curve, point] > 0 else math.nan


@jit("UniTuple(float64, 2)(float64[::1], int64, int64, boolean)")
def _extremes(points: np.ndarray, first: int, last: int, positive: bool) -> tuple[float, float]:
    """Return the minimum and the maximum of the bins first to last of one curve, only of values above 0 if `positive`;
    inf and -inf if there are none."""
    least, greatest = math.inf, -math.inf
    for place in range(first, last):
        low, high = points[2 * place], points[2 * place + 1]
        if positive and not low > 0:
            low = high  # something above 0 that the bin has
        if low < least and (low > 0 or not positive):
            least = low
        if high > greatest and (high > 0 or not positive):
            greatest = high
    return least, greatest


class Envelope(Bins):
    """One or more curves over the same steps, whose new values arrive together."""

    def __init__(self, curves: int = 1, capacity: int = CAPACITY, start: int = 0) -> None:
        super().__init__(capacity, start)
        # the minimum of each bin and then its maximum, in drawing order
        self._points = np.full((curves, 2 * capacity), np.nan)
        self._low, self._high = self._points[:, 0::2], self._points[:, 1::2]
        self._logs = np.full((curves, 2 * capacity), np.nan)  # log10 of the points
        self._flags = np.zeros((curves, capacity), np.uint8)
        self.flags = np.zeros(curves, np.uint8)  # of all bins
        self._ranges = np.tile([math.inf, -math.inf], (curves, 1))
        self.least, self.greatest = self._ranges.T  # of the finite values of each curve so far
        self._steps: tuple = ((), np.empty(0))  # of the bins drawn last

    def append(self, values: np.ndarray) -> None:
        """Add the values of the next steps, (curves, steps)."""
        curves, new = values.shape
        if curves != len(self._points):
            raise ValueError(f"{curves} curves where there are {len(self._points)}")
        if not new:
            return
        width = self.width
        self._make_room(new)
        changed = self.count // width if self.width == width else 0  # the first bin that is
        _take(values, self.count, self.width, changed, self._points, self._logs, self._ranges, self._flags, self.flags)
        self.count += new
        logs = self._logs[:, 2 * changed : 2 * self.used]
        np.log10(logs, out=logs)

    def curve(
        self, curve: int = 0, first: int = 0, last: int | None = None, *, log: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what to draw of the bins first to last: steps, and values or their log10. There is one point per step,
        or two per bin: its minimum and its maximum. From the second bin on, the last point before them comes first. The
        arrays must not be modified."""
        last = self.used if last is None else min(last, self.used)
        points = (self._logs if log else self._points)[curve]
        drawn = (first, last, self.width)
        if self.width == 1:
            bins = slice(max(first - 1, 0), last)
            points = points[1::2][bins]
        else:
            bins = slice(max(2 * first - 1, 0), 2 * last)
            points = points[bins]
        if self._steps[0] != drawn:
            self._steps = (drawn, self.start + PLACES[bins] * (self.width / 2 if self.width > 1 else 1.0))
        return self._steps[1], points

    def whole(self, curve: int, *, positive: bool) -> bool:
        """Return whether all values so far were finite, and above 0 if `positive`."""
        return not self.flags[curve] & (NAN | INF) and not (positive and self.least[curve] <= 0)

    def first_steps(self, flag: int, curve: int = 0) -> np.ndarray:
        """Return the first step of every bin that contains a value of this kind: NAN, INF or ZERO."""
        if not self.flags[curve] & flag:
            return np.empty(0)
        return self.start + np.flatnonzero(self._flags[curve, : self.used] & flag).astype(float) * self.width

    def above_zero(self, curve: int = 0) -> np.ndarray:
        """Return the first step of every bin that has a value above 0."""
        return self.start + np.flatnonzero(self._high[curve, : self.used] > 0).astype(float) * self.width

    def range(self, first: float, last: float, *, positive: bool, curve: int = 0) -> tuple[float, float] | None:
        """Return the minimum and the maximum finite value (above 0 if `positive`) between two steps; None if there are
        none."""
        if not self.count:  # and numba may not be loaded yet
            return None
        bins = (
            max(int((first - self.start) // self.width), 0),
            min(int((last - self.start) // self.width) + 1, self.used),
        )
        least, greatest = _extremes(self._points[curve], *bins, positive)
        return (least, greatest) if greatest > -math.inf else None

    def bins(self, curve: int = 0) -> tuple[np.ndarray, np.ndarray, float, int]:
        """Return the minimum and the maximum finite value of every bin of a curve, NaN if it has none; the first step
        of all, and the steps per bin. The arrays must not be modified."""
        return self._low[curve, : self.used], self._high[curve, : self.used], self.start, self.width

    def _merge(self) -> None:
        half = self._capacity // 2
        for each, merged in ((self._low, np.fmin), (self._high, np.fmax), (self._flags, np.bitwise_or)):
            each[:, :half] = merged(each[:, 0::2], each[:, 1::2])
        self._points[:, 2 * half :], self._flags[:, half:] = np.nan, 0
