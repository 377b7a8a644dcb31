"""A level line for dragging, with its label beside the plot: pyqtgraph's for the mouse, Qt's own for display."""

from __future__ import annotations

import pyqtgraph as pg
from pyqtgraph.GraphicsScene.mouseEvents import HoverEvent
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPen
from PySide6.QtWidgets import QGraphicsLineItem

from gradstudio.gui.drawing.canvas import Canvas, Label
from gradstudio.gui.drawing.cheap_frame import leave_unpainted
from gradstudio.gui.theme import theme

BESIDE = 4  # px between the right edge of the plot and the label


class DragLine(pg.InfiniteLine):
    """A level line for dragging. `dragged` is whether the user is dragging it."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(angle=0, movable=True)
        leave_unpainted(self)
        self._canvas = canvas
        self._line = QGraphicsLineItem(canvas.frame)
        self.label = Label(canvas, z=20, outside=True)
        self.label.setToolTip("Drag the line to set max_norm")
        self.setZValue(20)  # over the curves, for its label
        self._line.setZValue(20)
        self.setCursor(Qt.CursorShape.SizeVerCursor)
        self._usual = self._hovered = QPen()
        self.dragged = self._under_mouse = False
        self.sigDragged.connect(self._hold)
        self.sigPositionChangeFinished.connect(self._release)
        self.sigPositionChanged.connect(self.follow)
        canvas.box.sigTransformChanged.connect(self.follow)

    @property
    def level(self) -> float:
        """Its position on the y axis, in the units of the axis."""
        return self.pos().y()

    def apply_style(self, color: QColor) -> None:
        self._usual = QPen(color, 0, Qt.PenStyle.DotLine)
        faint = QColor(color)
        faint.setAlpha(90)
        self._hovered = QPen(faint, 13)  # as wide as the grabbable area
        self.setHoverPen(self._hovered)
        self.label.apply_style(color, QColor(Qt.GlobalColor.transparent), theme.font(0.8))
        self.follow()

    def show_at(self, level: float | None, text: str) -> None:
        """Move the line to a level; None hides it."""
        for item in (self, self._line, self.label):
            if item.isVisible() != (level is not None):
                item.setVisible(level is not None)
        if level is not None:
            self.setPos(level)
            self.write(text)

    def write(self, text: str) -> None:
        if text != self.label.toPlainText():
            self.label.setText(text)
            self.follow()

    def hoverEvent(self, ev: HoverEvent) -> None:
        super().hoverEvent(ev)
        under_mouse = ev.dragItems().get(Qt.MouseButton.LeftButton) is self
        if under_mouse != self._under_mouse:
            self._under_mouse = under_mouse
            self.follow()

    def follow(self) -> None:
        """Move the visible line to where the mouse finds it."""
        y = self._canvas.data.transform().map(QPointF(0, self.level)).y()
        width, height = self._canvas.size
        self._line.setLine(0, y, width, y)
        self._line.setPen(self._hovered if self._under_mouse else self._usual)
        high = self.label.rect().height()
        self.label.place(width + BESIDE, min(max(y - high / 2, 0.0), max(height - high, 0.0)), (0, 0))
        self.label.setOpacity(1.0 if 0 <= y <= height else 0.0)  # with its line, which is clipped there

    def _hold(self) -> None:
        self.dragged = True

    def _release(self) -> None:
        self.dragged = False
