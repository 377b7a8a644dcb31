"""What is done when a window is first visible."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
from PySide6.QtWidgets import QWidget

UNSEEN = 1000  # ms to wait for the first paint, which a window that opens minimized does not have

INPUT = {
    QEvent.Type.KeyPress, QEvent.Type.KeyRelease, QEvent.Type.ShortcutOverride, QEvent.Type.Shortcut,
    QEvent.Type.MouseButtonPress,
    QEvent.Type.MouseButtonRelease, QEvent.Type.MouseButtonDblClick, QEvent.Type.Wheel, QEvent.Type.DragEnter,
    QEvent.Type.Drop,
}  # fmt: skip


class _FirstPaintWatch(QObject):
    def __init__(self, app: QCoreApplication, window: QWidget, do: Callable[[], object]) -> None:
        super().__init__(window)
        self._app, self._window, self._do = app, window, do
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._on_paint)
        self._timer.start(UNSEEN)
        app.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.Paint and watched is self._window:
            self._timer.start(0)  # once the paint is on the screen
        return kind in INPUT

    def _on_paint(self) -> None:
        self._app.removeEventFilter(self)
        self.deleteLater()
        if self._window.isVisible():  # a minimized one is
            self._do()


def after_first_paint(window: QWidget, do: Callable[[], object]) -> None:
    """Call `do` once, after the first paint of `window`, unless it is closed by then. Ignore keys, clicks and drops
    until then."""
    app = QCoreApplication.instance()
    assert app is not None
    _FirstPaintWatch(app, window, do)
