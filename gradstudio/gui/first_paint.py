"""Doing something when a window is seen for the first time."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QWidget

UNSEEN = 1000  # ms after which it is done all the same, as for a window that opens minimized


class _Watcher(QObject):
    def __init__(self, window: QWidget, do: Callable[[], object]) -> None:
        super().__init__(window)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(do)
        self._timer.timeout.connect(self.deleteLater)
        self._timer.start(UNSEEN)
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint:
            watched.removeEventFilter(self)
            self._timer.start(0)  # when what is painted has come to the screen
        return False


def after_first_paint(window: QWidget, do: Callable[[], object]) -> None:
    """Do it once, behind the first paint of `window`."""
    _Watcher(window, do)
