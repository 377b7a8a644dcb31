"""Doing something when a window is seen for the first time."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
from PySide6.QtWidgets import QWidget

UNSEEN = 1000  # ms after which it is done all the same, as for a window that opens minimized

_INPUT = {
    QEvent.Type.KeyPress, QEvent.Type.KeyRelease, QEvent.Type.ShortcutOverride, QEvent.Type.Shortcut, QEvent.Type.MouseButtonPress,
    QEvent.Type.MouseButtonRelease, QEvent.Type.MouseButtonDblClick, QEvent.Type.Wheel, QEvent.Type.DragEnter, QEvent.Type.Drop,
}  # fmt: skip


class _Watcher(QObject):
    def __init__(self, window: QWidget, do: Callable[[], object]) -> None:
        super().__init__(window)
        self._window, self._do = window, do
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._seen)
        self._timer.start(UNSEEN)
        QCoreApplication.instance().installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and watched is self._window:
            self._timer.start(0)  # when what is painted has come to the screen
        return event.type() in _INPUT

    def _seen(self) -> None:
        QCoreApplication.instance().removeEventFilter(self)
        self.deleteLater()
        if self._window.isVisible():  # a minimized one is
            self._do()


def after_first_paint(window: QWidget, do: Callable[[], object]) -> None:
    """Do it once, behind the first paint of `window`, unless that is closed by then. Until then what a person types, clicks and drops goes
    nowhere."""
    _Watcher(window, do)
