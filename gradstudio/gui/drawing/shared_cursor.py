"""The range of steps on view and the cursor, which all plots share."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

SHORTEST = 50  # steps shown at the start


class StepRange(QObject):
    """The steps on view. The range follows the run, and grows by a quarter when the data leave it, until a person
    zooms."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = 0.0, float(SHORTEST)
        self.most = float(SHORTEST)  # steps that can be shown at all
        self.over = 0  # steps of the longest overlay
        self.following = True

    def follow(self, steps: int) -> None:
        """Make room for a run of this many rows, unless a person has zoomed. No signal is sent: the plots see it when
        they draw those rows."""
        self.most = max(self.most, steps * 1.25)
        if self.following and steps > self.last:
            self.first, self.last = 0.0, max(steps * 1.25, SHORTEST)

    def zoom(self, first: float, last: float) -> None:
        """Show the steps that a person chose, but no more than the run will have."""
        width = min(max(last - first, 8.0), self.most)
        first = min(max(first, 0.0), self.most - width)
        self.following = False
        self._set(first, first + width)

    def fit(self, steps: int) -> None:
        """Show the whole run and follow it again."""
        self.following = True
        self._set(0.0, max(max(steps, self.over) * 1.05, SHORTEST))
        self.changed.emit()

    def _set(self, first: float, last: float) -> None:
        if (first, last) != (self.first, self.last):
            self.first, self.last = first, last
            self.changed.emit()


class Cursor(QObject):
    """The step under the pointer, or None."""

    moved = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.step: int | None = None

    def move(self, step: int | None) -> None:
        if step != self.step:
            self.step = step
            self.moved.emit()
