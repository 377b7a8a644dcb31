"""The line at the viewed step, and the veil over what came after it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPen
from PySide6.QtWidgets import QGraphicsRectItem

from gradstudio.gui.drawing.canvas import LONG, Canvas, VerticalLine
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.viewed_step import ViewedStep

VEIL = 165  # alpha of the plot's own colour over later steps


class ViewedStepLine:
    """The line at a past step that is being viewed, in one plot."""

    def __init__(self, canvas: Canvas, looked: ViewedStep) -> None:
        self._canvas, self._looked = canvas, looked
        self._line, self._veil = VerticalLine(canvas), QGraphicsRectItem(canvas.columns)
        self._veil.setPen(Qt.PenStyle.NoPen)
        self._veil.setZValue(-1)  # below the marks of the run
        looked.changed.connect(self.place)
        self.place()

    @property
    def step(self) -> int | None:
        """The position of the line; None if there is none."""
        return self._looked.step if self._line.isVisible() else None

    def place(self) -> None:
        """Move the line to the viewed step."""
        step = self._looked.step
        for item in (self._line, self._veil):
            item.setVisible(step is not None)
        if step is not None:
            self._line.move_to(step)
            self._veil.setRect(QRectF(self._canvas.places.of(float(step)), 0, LONG, LONG))

    def restyle(self) -> None:
        self._line.setPen(QPen(theme.color("text"), 0))
        self._veil.setBrush(theme.color("plot", VEIL))
