"""An episode: a stretch of steps at which a value is too large, and its peak."""

from __future__ import annotations

from typing import NamedTuple


class Episode(NamedTuple):
    """The steps so far, and the peak; there is no episode before the first of them. Immutable: a rule replaces it."""

    first: int = -1
    last: int = -1
    peak: float = 0.0
    peak_step: int = -1

    @property
    def began(self) -> bool:
        return self.first >= 0

    def at(self, step: int, value: float) -> Episode:
        """Return the episode extended by one step, or the same one if the step is already in it."""
        first = self.first if self.began else step
        top = (value, step) if value > self.peak else (self.peak, self.peak_step)
        return Episode(first, max(step, self.last), *top)


NO_EPISODE = Episode()
