"""A level band behind the curves, between two values, with its words."""

from __future__ import annotations

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QGraphicsRectItem

from gradstudio.gui.drawing.canvas import Canvas, Label
from gradstudio.gui.theme import theme


class Band(QGraphicsRectItem):
    """A band between two positions of the y axis, in its units."""

    def __init__(self, canvas: Canvas, low: float, high: float, words: str) -> None:
        super().__init__(canvas.frame)
        self.low, self.high = low, high
        self._canvas = canvas
        self._label = Label(canvas, z=5)
        self._label.setText(words)
        self.setPen(Qt.PenStyle.NoPen)
        self.setZValue(-5)
        canvas.box.sigTransformChanged.connect(self.follow)

    def set_levels(self, low: float, high: float) -> None:
        """Move to two other positions of the axis."""
        self.low, self.high = low, high
        self.follow()

    def apply_style(self, ground: QColor, color: QColor, under_text: QColor) -> None:
        self.setBrush(ground)
        self._label.apply_style(color, under_text, theme.font(0.8))
        self.follow()

    def follow(self) -> None:
        """Move to where the y axis has its two values now."""
        mapped = self._canvas.data.transform()
        top, foot = (mapped.map(QPointF(0, level)).y() for level in (self.high, self.low))
        width, height = self._canvas.size
        top, foot = max(top, 0.0), min(foot, height)
        self.setRect(0, top, width, max(foot - top, 0.0))
        self._label.setVisible(foot - top > self._label.rect().height())
        self._label.place(0.99 * width, foot, (1, 1))
