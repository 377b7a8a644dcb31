"""The parts of the window that have the theme's style sheet, and when each of them is styled anew.

Qt styles a widget with all that is in it in one go, at a quarter of a millisecond each, seen or unseen. So the program
has no style sheet: each part of the window has one of its own. When the theme changes, the parts in sight are styled a
few in each turn of the event loop and then painted together; any other part is styled once it is shown, in the turn
after that.
"""

from __future__ import annotations

import time
from itertools import count

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget

SLICE = 0.02  # seconds of styling in one turn of the event loop, beside the last part of it


class StyledParts(QObject):
    """Every part of the window. A part must not lie inside of another one."""

    dressed = Signal()  # every part in sight has the latest style sheet

    def __init__(self) -> None:
        super().__init__()
        self._sheet = ""
        self._numbers = count()
        self._parts: dict[int, QWidget] = {}
        self._waiting: list[int] = []  # parts in sight, which are styled in the next turns
        self._stale: set[int] = set()  # parts out of sight, which are styled once they are shown
        self._unpainted: list[QWidget] = []  # windows that are painted again once their parts are styled
        self._watch = _ShowWatch(self)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._go_on)

    @property
    def busy(self) -> bool:
        """Whether a change is not carried out yet."""
        return self._timer.isActive()

    def add(self, part: QWidget) -> None:
        """Style a part of the window now and at every change. This is cheap before it was shown."""
        number = next(self._numbers)
        self._parts[number] = part
        part.destroyed.connect(lambda: self._forget(number))
        part.setStyleSheet(self._sheet)

    def change(self, sheet: str) -> None:
        """Style every part anew: those in sight soon, any other once it is shown."""
        self._sheet = sheet
        self._stale = set(self._parts)
        self._waiting = [number for number, part in self._parts.items() if part.isVisible()]
        for number in self._stale.difference(self._waiting):
            self._parts[number].installEventFilter(self._watch)
        self._unpainted = [window for window in QApplication.topLevelWidgets() if window.isVisible()]
        for window in self._unpainted:
            window.setUpdatesEnabled(False)  # or a person would see it half in the old look
        self._go_on()

    def dress(self, part: QWidget) -> None:
        """Style a part that was out of sight, in the next turn of the event loop: what shows it takes its time too."""
        part.removeEventFilter(self._watch)
        window = part.window()
        window.setUpdatesEnabled(False)  # or a person would see the old look
        QTimer.singleShot(0, window, lambda: self._dress_shown(part, window))

    def _dress_shown(self, part: QWidget, window: QWidget) -> None:
        for number in [number for number in self._stale if self._parts[number] is part]:
            self._style(number)
        if not self.busy:  # a change that has begun since shows its windows at its end
            window.setUpdatesEnabled(True)

    def _go_on(self) -> None:
        end, working = time.thread_time() + SLICE, bool(self._waiting)
        while self._waiting and time.thread_time() < end:
            self._style(self._waiting.pop())
        if self._waiting or working:
            self._timer.start(0)
            return
        self.dressed.emit()
        for window in QApplication.topLevelWidgets():  # of which some may be gone by now
            if any(window is each for each in self._unpainted):
                window.setUpdatesEnabled(True)
        self._unpainted = []

    def _style(self, number: int) -> None:
        if number in self._stale:
            self._stale.discard(number)
            self._parts[number].setStyleSheet(self._sheet)

    def _forget(self, number: int) -> None:
        self._parts.pop(number, None)
        self._stale.discard(number)


class _ShowWatch(QObject):
    """Tells when a part that has an old style sheet is shown."""

    def __init__(self, parts: StyledParts) -> None:
        super().__init__(parts)
        self._parts = parts

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and isinstance(watched, QWidget):
            self._parts.dress(watched)
        return False
