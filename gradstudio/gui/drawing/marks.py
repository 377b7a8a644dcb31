"""Symbols on a plot, each at a step: a movable one (Mark), or any number at one height (Marks)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPen, QPixmap, QPolygonF, QTransform
from PySide6.QtWidgets import QGraphicsPixmapItem

from gradstudio.gui.drawing.canvas import Canvas


def _polygon(*corners: tuple[float, float]) -> QPainterPath:
    path = QPainterPath()
    path.addPolygon(QPolygonF([QPointF(x, y) for x, y in corners]))
    path.closeSubpath()
    return path


def _circle() -> QPainterPath:
    path = QPainterPath()
    path.addEllipse(QRectF(-0.5, -0.5, 1, 1))
    return path


def _cross() -> QPainterPath:
    quarter = [(-0.5, -0.1), (-0.5, 0.1), (-0.1, 0.1)]
    corners = [(c * x + s * y, c * y - s * x) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1)) for x, y in quarter]
    return QTransform().rotate(45).map(_polygon(*corners))


SYMBOLS = {  # in a square of side 1 around the origin
    "circle": _circle(),
    "cross": _cross(),
    "up": _polygon((-0.5, 0.5), (0, -0.5), (0.5, 0.5)),
    "above": _polygon((-0.5, 0.3), (0, -0.3), (0.5, 0.3), (0.5, 0.05), (0, -0.55), (-0.5, 0.05)),
    "tick": _polygon((-0.1, -0.5), (0.1, -0.5), (0.1, 0.5), (-0.1, 0.5)),
    "down": _polygon((-0.5, -0.5), (0, 0.5), (0.5, -0.5)),
}


def symbol(canvas: Canvas, name: str, size: int, line: QColor | None, fill: QColor, width: float) -> QPixmap:
    """Return the picture of a symbol, `size` px across, with a line of `width` px around it."""
    pen = QPen(Qt.PenStyle.NoPen) if line is None else QPen(line, width)
    pen.setCosmetic(True)
    views: Sequence = canvas.box.scene().views() if canvas.box.scene() else ()
    scale = canvas.sharp or (views[0].devicePixelRatioF() if views else 1.0)
    side = math.ceil(scale * (size + max(math.ceil(pen.widthF()), 1)))
    drawn = QImage(side, side, QImage.Format.Format_ARGB32_Premultiplied)
    drawn.setDevicePixelRatio(scale)
    drawn.fill(Qt.GlobalColor.transparent)
    with QPainter(drawn) as painter:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(side / scale / 2, side / scale / 2)
        painter.scale(size, size)
        painter.setPen(pen)
        painter.setBrush(fill)
        painter.drawPath(SYMBOLS[name])
    picture = QPixmap.fromImage(drawn)
    picture.setDevicePixelRatio(scale)
    return picture


class Mark(QGraphicsPixmapItem):
    """One symbol at one step, at half the plot's height. It moves thirty times a second."""

    def __init__(self, canvas: Canvas, name: str, size: int, z: float) -> None:
        super().__init__(canvas.frame)
        self._canvas, self._name, self._size = canvas, name, size
        self.step: float | None = None
        self._at = (0, 0)  # pixels
        self.setShapeMode(QGraphicsPixmapItem.ShapeMode.BoundingRectShape)
        self.setZValue(z)
        self.hide()
        canvas.box.sigTransformChanged.connect(self._place)

    def apply_style(self, line: QColor, fill: QColor, width: float = 2) -> None:
        picture = symbol(self._canvas, self._name, self._size, line, fill, width)
        self.setPixmap(picture)
        self.setOffset(-picture.deviceIndependentSize().width() / 2, -picture.deviceIndependentSize().height() / 2)

    def show_at(self, step: float | None) -> None:
        """Move the mark to a step; None hides it."""
        if (step is None) != (self.step is None):
            self.setVisible(step is not None)
        self.step = step
        self._place()

    def _place(self) -> None:
        if self.step is None:
            return
        place = (round(self._canvas.across(self.step)), round(self._canvas.size[1] / 2))
        if place != self._at:
            self._at = place
            self.setPos(*place)


class Marks(QGraphicsPixmapItem):
    """One symbol at any number of steps, all at one height: a strip as wide as the plot."""

    def __init__(self, canvas: Canvas, name: str, size: int, z: float, height: float = 0.5) -> None:
        super().__init__(canvas.frame)
        self._canvas, self._name, self._size, self._height = canvas, name, size, height
        self.steps = np.empty(0)
        self._there = np.empty(0)  # pixels across that have a mark
        self._drawn: tuple = ()
        self._symbol = QPixmap()
        self.setShapeMode(QGraphicsPixmapItem.ShapeMode.BoundingRectShape)
        self.setZValue(z)
        self.hide()
        canvas.box.sigTransformChanged.connect(self._draw)

    def apply_style(self, line: QColor | None, fill: QColor, width: float = 2) -> None:
        """Set the colours; `width` is that of the outline, in px."""
        self._symbol = symbol(self._canvas, self._name, self._size, line, fill, width)
        self._drawn = ()
        self._draw()

    def show_at(self, steps: np.ndarray) -> None:
        self.steps = steps
        self.setVisible(bool(len(steps)))
        self._draw()

    def getData(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps of the marks, and the height of each as a share of the plot's height from its top."""
        return self.steps, np.full(len(self.steps), self._height)

    def _draw(self) -> None:
        """Draw the new marks, or all of them if the plot has moved or grown."""
        if not len(self.steps):
            self._drawn = ()
            return
        width, height = self._canvas.size
        scale = self._symbol.devicePixelRatio()
        half_wide, half_high = self._symbol.width() / scale / 2, self._symbol.height() / scale / 2
        across = np.unique(np.rint(self._canvas.across(self.steps)))
        across = across[(across > -half_wide) & (across < width + half_wide)]
        here = (width, height, self._canvas.across(0.0), self._canvas.across(1.0), scale)
        strip = self.pixmap()
        if here != self._drawn or not np.isin(self._there, across).all():
            self._drawn, self._there = here, np.empty(0)
            strip = QPixmap(max(round(width * scale), 1), self._symbol.height())
            strip.setDevicePixelRatio(scale)
            strip.fill(Qt.GlobalColor.transparent)
            self.setPixmap(strip)  # even if none of them is in view
            self.setOffset(QPointF(0, round(height * self._height - half_high)))
        new = np.setdiff1d(across, self._there, assume_unique=True)
        if len(new):
            self.setPixmap(QPixmap())  # so that painting on it copies nothing
            with QPainter(strip) as painter:
                for x in new.tolist():
                    painter.drawPixmap(QPointF(round(x - half_wide), 0), self._symbol)
            self._there = across
            self.setPixmap(strip)
