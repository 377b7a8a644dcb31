"""The range of steps on view and the cursor, which all plots share."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Signal

SHORTEST = 50  # steps shown at the start
ONE_ZOOM = 0.6  # seconds without a move after which the next one is another zoom
MOST_VIEWS = 50  # that can be gone back to
View = tuple[float, float] | None  # the first and the last step; None for the whole run, followed


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
        self._back: list[View] = []  # views before this one, the latest last
        self._forward: list[View] = []  # views that were left by going back
        self._changed_at = 0.0

    def follow(self, steps: int) -> None:
        """Make room for a run of this many rows, unless a person has zoomed. No signal is sent: the plots see it when
        they draw those rows."""
        self.most = max(self.most, steps * 1.25)
        if self.following and steps > self.last:
            self.first, self.last = 0.0, max(steps * 1.25, SHORTEST)

    def zoom(self, first: float, last: float) -> None:
        """Show the steps that a person chose, but no more than the run will have."""
        self._remember()
        self._show(first, last)

    def _show(self, first: float, last: float) -> None:
        width = min(max(last - first, 8.0), self.most)
        first = min(max(first, 0.0), self.most - width)
        self.following = False
        self._set(first, first + width)

    def fit(self, steps: int) -> None:
        """Show the whole run and follow it again."""
        self.following = True
        self._set(0.0, max(max(steps, self.over) * 1.05, SHORTEST))
        self.changed.emit()

    def whole(self, steps: int) -> None:
        """Show the whole run because a person wants to, and so can go back."""
        if not self.following:
            self._remember()
        self.fit(steps)

    def back(self, steps: int) -> None:
        """Show the view before the latest zoom, of a run of so many steps; forward leads here again."""
        self._go(self._back, self._forward, steps)

    def forward(self, steps: int) -> None:
        """Show the view that `back` left."""
        self._go(self._forward, self._back, steps)

    @property
    def can_go(self) -> tuple[bool, bool]:
        """Whether there is a view to go back to, and one to go forward to."""
        return bool(self._back), bool(self._forward)

    def _go(self, there: list[View], here: list[View], steps: int) -> None:
        if not there:
            return
        here.append(None if self.following else (self.first, self.last))
        self._changed_at = 0.0
        view = there.pop()
        if view is None:
            self.fit(steps)
        else:
            self._show(*view)

    def _remember(self) -> None:
        """Keep the view before a zoom. Notches of the wheel and pixels of a drag that follow each other are one."""
        now = time.monotonic()
        if now > self._changed_at + ONE_ZOOM:
            self._back = [*self._back[1 - MOST_VIEWS :], None if self.following else (self.first, self.last)]
            self._forward = []
        self._changed_at = now

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
