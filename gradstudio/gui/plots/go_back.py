"""What a click on a plot offers: to go back to the step that was clicked."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QPushButton, QWidget

from gradstudio.gui.plots.step_plot import StepPlot

ASIDE = QPoint(10, -34)  # px from the pointer, so that a double click meets the plot


class GoBack(QPushButton):
    """A button beside the pointer, until another place is clicked or the pointer leaves the plot."""

    chosen = Signal(int)

    def __init__(self, over: QWidget) -> None:
        super().__init__(over)
        self._step = 0
        self._plot: StepPlot | None = None
        self.setProperty("role", "small")
        self.setToolTip("Everything is then as it was before this step; to go on from there makes a branch")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.clicked.connect(self._choose)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.hide)
        self.hide()

    def offer(self, plot: StepPlot, step: int, place: QPoint) -> None:
        """Offer a step beside a place of the parent widget."""
        if self._plot is not None:
            self._plot.widget.removeEventFilter(self)
        self._plot, self._step = plot, step
        plot.widget.installEventFilter(self)
        self.setText(f"Go back to step {step:,}")
        self.adjustSize()
        room = self.parentWidget().rect().adjusted(0, 0, -self.width() - 4, -self.height() - 4)
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
