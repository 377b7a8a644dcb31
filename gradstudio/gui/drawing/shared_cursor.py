"""The range of visible steps and the cursor, which all plots share."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Signal

from gradstudio.core.history import History
from gradstudio.gui.drawing.places import GUESS, Places
from gradstudio.gui.widgets.viewed_step import ViewedStep

SHORTEST = 50  # steps shown at the start
CLOSEST = 8  # steps in a view, at least
ONE_ZOOM = 0.6  # seconds without a move after which the next one counts as another zoom
MOST_VIEWS = 50  # views to go back to
View = tuple[float, float] | None  # its two ends; None for the whole run, followed


class StepRange(QObject):
    """The visible steps. The range follows the run, and grows by a quarter when the data leave it, until the user
    zooms. `left` and `right` are its ends in the units of the axis, and `first` and `last` the steps there."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.places = Places()
        self.left, self.right = 0.0, float(SHORTEST)
        self.most = float(SHORTEST)  # last step that can be shown at all
        self.over = 0.0  # end of the longest overlay, in the units of the axis
        self.planned = 0  # planned steps of the run; 0 if unknown
        self.ended = False  # whether it will not grow any more
        self.fits = 0  # how often the whole run was shown: each time, the y axes are fitted too
        self.following = True
        self._back: list[View] = []  # views before this one, the latest last
        self._forward: list[View] = []  # views that were left by going back
        self._changed_at = 0.0

    @property
    def first(self) -> float:
        """The first visible step."""
        return self.places.step_at(self.left)

    @property
    def last(self) -> float:
        """The last visible step."""
        return self.places.step_at(self.right)

    def show_time(self, history: History, timed: bool) -> None:
        """Show the same steps of a run over the seconds of the run, or over their numbers."""
        ends, count = (self.first, self.last), len(history)
        self.places.timed = timed
        self.places.take(history, count)
        self._back, self._forward = [], []  # they are in the other unit
        if self.following:
            self.fit(count)
        else:
            self._set(*(self.places.of(end) for end in ends))

    def follow(self, steps: float) -> None:
        """Make room for a run with this many rows, unless the user has zoomed. No signal is emitted: the plots notice
        when they draw those rows."""
        self.most = max(self.most, steps * 1.25)
        end = self.places.of(steps)
        if self.following and end > self.right:
            self.left, self.right = 0.0, max(self._with_room(end, 1.25), self._shortest)

    def zoom(self, left: float, right: float) -> None:
        """Show the user's choice, in the units of the axis, but no more than the run will have."""
        self._remember()
        self._show(left, right)

    def _show(self, left: float, right: float) -> None:
        most = self.places.of(self.most)
        width = min(max(right - left, CLOSEST * self.places.pace), most)
        left = min(max(left, 0.0), most - width)
        self.following = False
        self._set(left, left + width)

    def fit(self, steps: int) -> None:
        """Show the whole run and follow it again."""
        self.following = True
        self.fits += 1
        end = max(self.places.of(float(steps)), self.over)
        self.left, self.right = 0.0, max(end if self.ended else self._with_room(end, 1.05), self._shortest)
        self.changed.emit()

    def _with_room(self, end: float, times: float) -> float:
        """Return an end `times` as far, but not beyond the planned steps."""
        planned = self.places.of(float(self.planned))
        return min(end * times, planned) if end <= planned else end * times

    @property
    def _shortest(self) -> float:
        steps = CLOSEST if self.ended else min(SHORTEST, self.planned or SHORTEST)
        return steps * (GUESS if self.places.timed else 1.0)

    def whole(self, steps: int) -> None:
        """Show the whole run at the user's request, with the way back."""
        if not self.following:
            self._remember()
        self.fit(steps)

    def back(self, steps: int) -> None:
        """Show the view before the latest zoom, for a run of this many steps; forward returns here."""
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
        here.append(None if self.following else (self.left, self.right))
        self._changed_at = 0.0
        view = there.pop()
        if view is None:
            self.fit(steps)
        else:
            self._show(*view)

    def _remember(self) -> None:
        """Remember the view before a zoom. Consecutive notches of the wheel and pixels of a drag count as one."""
        now = time.monotonic()
        if now > self._changed_at + ONE_ZOOM:
            self._back = [*self._back[1 - MOST_VIEWS :], None if self.following else (self.left, self.right)]
            self._forward = []
        self._changed_at = now

    def _set(self, left: float, right: float) -> None:
        if (left, right) != (self.left, self.right):
            self.left, self.right = left, right
            self.changed.emit()


class Cursor(QObject):
    """The step that the plots read: the one under the pointer, otherwise the viewed one, or None."""

    moved = Signal()

    def __init__(self, looked: ViewedStep | None = None) -> None:
        super().__init__()
        self.looked = ViewedStep() if looked is None else looked
        self._under_pointer: int | None = None
        self.looked.changed.connect(self._look)

    @property
    def step(self) -> int | None:
        return self.looked.step if self._under_pointer is None else self._under_pointer

    def move(self, step: int | None) -> None:
        """Set the step under the pointer; None if it is over no plot."""
        before, self._under_pointer = self.step, step
        if before != self.step:
            self.moved.emit()

    def _look(self) -> None:
        """Read the step that is viewed now, wherever the pointer rests."""
        self._under_pointer = None
        self.moved.emit()
