"""The budget of a frame: how long the window rests between two frames, and what it does not do in each of them. How a
frame is drawn cheaply is in drawing/cheap_frame.py."""

from __future__ import annotations

INTERVAL = 33  # ms from one frame to the next
SLOWEST = 200  # ms
SHARE = 0.05  # largest share of one core that the frames take together, as far as SLOWEST allows


class FrameBudget:
    """Longer rests if frames cost more, so that over time they take no more than `SHARE` of a core.

    The window and the training share the interpreter lock: while a frame runs Python, the training cannot."""

    def __init__(self) -> None:
        self._cost = 0.0  # ms of a core that a frame takes, on average

    def interval(self, cost: float) -> int:
        """Return the ms until the next frame, after one that took `cost` ms. A single expensive frame, such as that of
        a new preset, changes nothing."""
        self._cost += 0.1 * (min(cost, 3 * self._cost + 1) - self._cost)
        return round(min(max(INTERVAL, self._cost / SHARE), SLOWEST))


class Every:
    """Whether this many seconds have passed since the last time."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._due = seconds, 0.0

    def at(self, now: float) -> bool:
        return now >= self._due

    def restart(self, now: float) -> None:
        self._due = now + self._seconds
