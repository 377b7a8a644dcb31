"""The button that appears on a click on a plot: rewind to the step that was clicked."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QPushButton, QWidget

ASIDE = QPoint(10, -34)  # px from the pointer, so that a double click meets the plot


class RewindButton(QPushButton):
    """A button beside the pointer. It stays until a click elsewhere, Escape, or a move of the plot."""

    chosen = Signal(int)

    def __init__(self, over: QWidget) -> None:
        super().__init__(over)
        self._over = over
        self._step = 0
        self._clicked: QWidget | None = None
        self.setProperty("role", "small")
        self.setToolTip("Set the run back to the start of this step; a changed knob then starts a branch")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.clicked.connect(self._choose)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.hide)
        self.hide()

    def offer(self, step: int, clicked: QWidget, place: QPoint) -> None:
        """Offer a step after a click on a widget, at this position of the parent widget."""
        if self._clicked is not None:
            self._clicked.removeEventFilter(self)
        self._clicked, self._step = clicked, step
        clicked.installEventFilter(self)
        self.setText(f"Rewind to step {step:,}")
        self.adjustSize()
        room = self._over.rect().adjusted(0, 0, -self.width() - 4, -self.height() - 4)
        at = place + ASIDE
        if at.x() > room.right():
            at.setX(place.x() - ASIDE.x() - self.width())
        self.move(min(max(at.x(), 0), room.right()), min(max(at.y(), 0), room.bottom()))
        self.show()
        self.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Wheel, QEvent.Type.MouseButtonDblClick, QEvent.Type.Hide):
            self.hide()
        return False

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.hide()

    def _choose(self) -> None:
        self.hide()
        self.chosen.emit(self._step)
