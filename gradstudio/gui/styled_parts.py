"""The parts of the window with the theme's style sheet, and when each of them is restyled.

Qt styles a widget with all of its children in one go, at a quarter of a millisecond each, visible or not. So the
program has no style sheet: each part of the window has its own. When the theme changes, the visible parts are styled, a
few in each turn of the event loop, and then painted together; any other part is styled once it is shown, in the turn
after that. Each sheet is parsed again, which takes as long as styling three widgets: a part has some ten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from PySide6.QtCore import QAbstractEventDispatcher, QCoreApplication, QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget

SLICE = 0.01  # seconds of a turn of the event loop after which no further part is styled in it


class _Part(NamedTuple):
    widget: QWidget
    restyle: Callable[[], object]


class StyledParts(QObject):
    """Every part of the window. Parts must not be nested."""

    dressed = Signal()  # every visible part has the latest style sheet

    def __init__(self) -> None:
        super().__init__()
        self._sheet = ""
        self._numbers = count()
        self._parts: dict[int, _Part] = {}
        self._waiting: list[int] = []  # visible parts, which are styled in the next turns, the last one first
        self._stale: set[int] = set()  # hidden parts, which are styled once they are shown
        self._gathered: list[int] | None = None  # parts that were added inside `together`
        self._unpainted: list[QWidget] = []  # windows that are repainted once their parts are styled
        self.busy = False  # whether a change is still pending
        self.at_work = False  # whether anything visible is not styled yet
        self._watch = _ShowWatch(self)
        self._turn = 0.0  # when the turn of the event loop began, in seconds of this thread
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._go_on)

    def add(self, part: QWidget, restyle: Callable[[], object]) -> None:
        """Style a part of the window now and at every change. Cheap before it was shown. `restyle` is called after each
        change, for anything that Qt does not style."""
        number = next(self._numbers)
        self._parts[number] = _Part(part, restyle)
        part.destroyed.connect(lambda: self._forget(number))
        if self._gathered is None:
            part.setStyleSheet(self._sheet)
        else:
            self._gathered.append(number)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Style the parts that are added in this context at its end, when they are in their final places: Qt would
        restyle a part each time it is moved."""
        gathered: list[int] = []
        before, self._gathered = self._gathered, gathered
        try:
            yield
        finally:
            self._gathered = before
            for part in [self._parts[number].widget for number in gathered if number in self._parts]:
                part.ensurePolished()  # later it would parse the sheet a second time
                part.setStyleSheet(self._sheet)

    def change(self, sheet: str) -> None:
        """Restyle every part: visible ones soon, any other once it is shown."""
        self._sheet, self.busy = sheet, True
        self._stale = set(self._parts)
        self._waiting = [number for number, part in self._parts.items() if part.widget.isVisible()]
        for number in self._stale.difference(self._waiting):
            self._parts[number].widget.installEventFilter(self._watch)
        for window in QApplication.topLevelWidgets():
            if window.isVisible():
                self._hold(window)
        self._begin()  # the change of font and palette has used up the time of this turn

    def apply_style(self, part: QWidget) -> None:
        """Style a part that was hidden in one of the next turns: showing it takes its time too."""
        part.removeEventFilter(self._watch)
        shown = [number for number in self._stale.difference(self._waiting) if self._parts[number].widget is part]
        if shown:
            self._waiting = shown + self._waiting
            self._hold(part.window())
            self._begin()

    def _hold(self, window: QWidget) -> None:
        """Suspend painting of a window, which would otherwise be half in the old look."""
        window.setUpdatesEnabled(False)
        self._unpainted.append(window)

    def _begin(self) -> None:
        if not self.at_work:
            self.at_work = True
            _dispatcher().awake.connect(self._begin_turn)
            self._timer.start(0)

    def _begin_turn(self) -> None:
        self._turn = time.thread_time()

    def _go_on(self) -> None:
        """Style a part, and others in the time left by the layout of the earlier ones."""
        if self._waiting:
            self._timer.start(0)  # first: a part that raises must not keep the others from being styled and painted
            self._style(self._waiting.pop())
            while self._waiting and time.thread_time() < self._turn + SLICE:
                self._style(self._waiting.pop())
            return
        self.at_work = False
        _dispatcher().awake.disconnect(self._begin_turn)
        if self.busy:
            self.busy = False
            self.dressed.emit()
        if not self.at_work:  # or a part was shown just now
            self._paint()

    def _paint(self) -> None:
        """Repaint the windows, some of which may be gone by now."""
        for window in QApplication.topLevelWidgets():
            if any(window is each for each in self._unpainted):
                window.setUpdatesEnabled(True)
                # If all of it was to be repainted when it was suspended, Qt still assumes that this is pending,
                # requests no other repaint, and the window would be frozen.
                QCoreApplication.postEvent(window, QEvent(QEvent.Type.UpdateRequest))
        self._unpainted = []

    def _style(self, number: int) -> None:
        if number in self._stale:
            self._stale.discard(number)
            part = self._parts[number]
            part.widget.setStyleSheet(self._sheet)
            part.restyle()

    def _forget(self, number: int) -> None:
        self._parts.pop(number, None)
        self._stale.discard(number)


class _ShowWatch(QObject):
    """Reports when a part with an old style sheet is shown."""

    def __init__(self, parts: StyledParts) -> None:
        super().__init__(parts)
        self._parts = parts

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and isinstance(watched, QWidget):
            self._parts.apply_style(watched)
        return False


def _dispatcher() -> QAbstractEventDispatcher:
    dispatcher = QAbstractEventDispatcher.instance()
    assert dispatcher is not None
    return dispatcher
