"""The inside of a plot, with its lines and labels; its marks are in marks.py."""

from __future__ import annotations

from typing import overload

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QPainterPath
from PySide6.QtWidgets import (
    QGraphicsItem,
    QGraphicsLineItem,
    QGraphicsPathItem,
    QGraphicsRectItem,
    QGraphicsSimpleTextItem,
)

from gradstudio.gui.drawing.cheap_frame import leave_unpainted
from gradstudio.gui.drawing.places import Places

LONG = 1e5  # px: longer than any window is high


class Canvas:
    """The inside of a plot. `frame` is in pixels and clips its content; inside are `data`, in the coordinates of the
    view box, and `columns`, with positions of the x axis across and pixels down."""

    def __init__(self, box: pg.ViewBox, places: Places) -> None:
        self.box, self.places = box, places
        self.sharp = 0  # pixels of a figure per logical pixel, while one is drawn; 0 for the screen
        self.frame = _group(box)
        self.frame.setFlag(QGraphicsItem.GraphicsItemFlag.ItemClipsChildrenToShape)
        self.data, self.columns = _group(self.frame), _group(self.frame)
        self.columns.setZValue(50)
        self.size = (0.0, 0.0)  # pixels, across and down
        self._wide, self._left = 1.0, 0.0  # pixels: width of one unit of the axis, and position of its 0
        box.sigTransformChanged.connect(self._follow)

    def settle(self) -> None:
        """Update the canvas to the ranges and the size of the view box."""
        self.box.childTransform()  # which emits a change, and _follow is called

    def _follow(self) -> None:
        transform = self.box.childTransform()
        frame = self.box.rect()
        self.size, self._wide, self._left = (frame.width(), frame.height()), transform.m11(), transform.dx()
        self.frame.setRect(frame)
        self.data.setTransform(transform)
        self.columns.setTransform(type(transform)(self._wide, 0, 0, 1, self._left, 0))

    @overload
    def across(self, steps: float) -> float: ...
    @overload
    def across(self, steps: np.ndarray) -> np.ndarray: ...
    def across(self, steps: np.ndarray | float) -> np.ndarray | float:
        """Return the pixels of steps from the left edge of the frame."""
        return self._wide * self.places.of(steps) + self._left


def _group(parent: QGraphicsItem) -> QGraphicsRectItem:
    group = QGraphicsRectItem(parent)
    group.setPen(Qt.PenStyle.NoPen)
    leave_unpainted(group)
    return group


class VerticalLine(QGraphicsLineItem):
    """A vertical line at one step."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(0, 0, 0, LONG, canvas.columns)
        self._places = canvas.places

    def move_to(self, step: float) -> None:
        """Move the line to a step."""
        self.setPos(self._places.of(step), 0)

    def value(self) -> float:
        """Return its position, in the units of the axis."""
        return self.x()


class VerticalLines(QGraphicsPathItem):
    """Vertical lines at any number of steps."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas.columns)
        self._places = canvas.places

    def show_at(self, steps: np.ndarray) -> None:
        path = QPainterPath()
        for place in self._places.of(steps).tolist():
            path.moveTo(place, 0)
            path.lineTo(place, LONG)
        self.setPath(path)
        self.setVisible(bool(len(steps)))


class Label(QGraphicsRectItem):
    """A text on a background that keeps it legible; `outside` lets it extend beyond the plot, where it is not
    clipped."""

    def __init__(self, canvas: Canvas, z: float, *, outside: bool = False) -> None:
        super().__init__(canvas.box if outside else canvas.frame)
        self._frame = canvas.frame
        self._text = QGraphicsSimpleTextItem(self)
        self._text.setPos(1, 1)
        self.setPen(Qt.PenStyle.NoPen)
        self.setZValue(z)

    @property
    def fill(self) -> QBrush:
        return self.brush()

    def apply_style(self, color: QColor, ground: QColor, font: QFont) -> None:
        self._text.setBrush(color)
        self._text.setFont(font)
        self.setBrush(ground)
        self._fit()

    def toPlainText(self) -> str:
        return self._text.text()

    def setText(self, text: str) -> None:
        if text != self._text.text():
            self._text.setText(text)
            self._fit()

    def place(self, x: float, y: float, anchor: tuple[float, float]) -> None:
        """Put the point at `anchor` (shares of the label's width and height) at a pixel of the frame. A label whose
        point is visible is moved as far as its beginning would be clipped."""
        wide, room = self.rect().width(), self._frame.rect().width()
        left = x - anchor[0] * wide
        if 0 <= x <= room:
            left = max(min(left, room - wide), 0.0)
        self.setPos(round(left), round(y - anchor[1] * self.rect().height()))

    def _fit(self) -> None:
        inner = self._text.boundingRect()
        self.setRect(QRectF(0, 0, inner.width() + 2 if self._text.text() else 0, inner.height() + 2))
