"""Bins of steps that are filled as rows arrive and never recomputed: when they are full, neighbours are merged and each
covers twice the steps. A subclass defines the content of a bin: an envelope of curves, or the maximum of each row of
the heatmap."""

from __future__ import annotations


class Bins:
    """At most `capacity` bins of equal width, from step `start` on."""

    def __init__(self, capacity: int, start: int) -> None:
        self.start = start
        self.width = 1  # steps in a bin
        self.count = 0  # steps taken in
        self._capacity = capacity

    @property
    def used(self) -> int:
        """Number of bins that have a value."""
        return -(-self.count // self.width)

    @property
    def done(self) -> int:
        """Number of bins that will not change any more."""
        return self.count // self.width

    @property
    def left_edge(self) -> float:
        """Left edge of the first bin on the x axis."""
        return self.start - 0.5

    def _make_room(self, new: int) -> None:
        """Merge neighbours until so many new steps fit."""
        while self.count + new > self._capacity * self.width:
            self._merge()
            self.width *= 2

    def _merge(self) -> None:
        """Merge each pair of bins into one; the second half of them is then empty."""
        raise NotImplementedError
