"""What a plot is drawn on. Nothing here runs Python while it is painted.

pyqtgraph paints in Python, and holds the interpreter lock from a frame's first item to its last, the time that Qt itself takes
included: the training thread waits. So pyqtgraph keeps the ranges, the ticks, the mouse and the layout, and what is painted
are items of Qt's own, which the training thread does not notice.
"""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from pyqtgraph.graphicsItems.ScatterPlotItem import renderSymbol
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QFont, QPainter, QPainterPath, QPixmap, QResizeEvent
from PySide6.QtWidgets import (
    QGraphicsItem,
    QGraphicsLineItem,
    QGraphicsPathItem,
    QGraphicsPixmapItem,
    QGraphicsRectItem,
    QGraphicsScene,
    QGraphicsSimpleTextItem,
    QGraphicsView,
)

LONG = 1e5  # px: longer than any window is high

_Flag = QGraphicsItem.GraphicsItemFlag


class PlotView(pg.PlotWidget):
    """pyqtgraph's view, painted without it."""

    resized = Signal()
    paintEvent = QGraphicsView.paintEvent  # pyqtgraph's own is Python, and would hold the interpreter lock until all is painted

    def __init__(self, box: pg.ViewBox, axes: dict[str, pg.AxisItem]) -> None:
        super().__init__(viewBox=box, axisItems=axes)
        self.scene().setItemIndexMethod(QGraphicsScene.ItemIndexMethod.NoIndex)
        plot = self.getPlotItem()
        for item in (plot, box):
            leave_unpainted(item)
        # Each of these is a call of Python in which the interpreter lock is let go, and nobody listens.
        plot.sigRangeChanged.disconnect(self.viewRangeChanged)
        box.sigStateChanged.disconnect(plot.viewStateChanged)
        for name in ("sigRangeChanged", "sigXRangeChanged", "sigYRangeChanged"):
            getattr(box, name).disconnect(getattr(plot, name))
        plot.getAxis("top").unlinkFromView()  # which is never shown

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        super().resizeEvent(event)
        if self.getPlotItem() is None:  # pyqtgraph calls this while it is being made
            return
        self.getPlotItem().layout.activate()  # now and not after the next paint
        self.resized.emit()


def leave_unpainted(item: QGraphicsItem, unpainted: bool = True) -> None:
    """Qt looks past it, and asks its Python for nothing; its children are painted, and the mouse still finds it."""
    item.setFlag(_Flag.ItemHasNoContents, unpainted)
    item.setFlag(_Flag.ItemClipsChildrenToShape, False)


class Canvas:
    """The inside of a plot: `frame` in pixels, which cuts off whatever leaves it, and in it `data` in the coordinates of the
    view box, and `columns` with its steps across and pixels down."""

    def __init__(self, box: pg.ViewBox) -> None:
        self.box = box
        self.sharp = 0  # pixels of a figure that is being drawn in one of Qt's; 0 for the screen
        self.frame = _group(box)
        self.frame.setFlag(_Flag.ItemClipsChildrenToShape)
        self.data, self.columns = _group(self.frame), _group(self.frame)
        self.columns.setZValue(50)
        self.size = (0.0, 0.0)  # pixels, across and down
        self._step_wide, self._left = 1.0, 0.0  # pixels: of one step, and where the first one stands
        box.sigTransformChanged.connect(self.follow)

    def follow(self) -> None:
        """Take over the range and the size of the view box."""
        transform = self.box.childGroup.transform()
        frame = self.box.rect()
        self.size, self._step_wide, self._left = (frame.width(), frame.height()), transform.m11(), transform.dx()
        self.frame.setRect(frame)
        self.data.setTransform(transform)
        self.columns.setTransform(type(transform)(self._step_wide, 0, 0, 1, self._left, 0))

    def across(self, steps: np.ndarray | float) -> np.ndarray | float:
        """Pixels from the left edge of the frame."""
        return self._step_wide * steps + self._left


def _group(parent: QGraphicsItem) -> QGraphicsRectItem:
    group = QGraphicsRectItem(parent)
    group.setPen(Qt.PenStyle.NoPen)
    leave_unpainted(group)
    return group


class Upright(QGraphicsLineItem):
    """A line from top to bottom at one step."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(0, 0, 0, LONG, canvas.columns)

    def value(self) -> float:
        return self.x()


class Uprights(QGraphicsPathItem):
    """Lines from top to bottom at any number of steps."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas.columns)

    def show_at(self, steps: np.ndarray) -> None:
        path = QPainterPath()
        for step in steps.tolist():
            path.moveTo(step, 0)
            path.lineTo(step, LONG)
        self.setPath(path)
        self.setVisible(bool(len(steps)))


class Label(QGraphicsRectItem):
    """A line of text on a ground that keeps it legible."""

    def __init__(self, canvas: Canvas, z: float, margin: float = 1) -> None:
        super().__init__(canvas.frame)
        self._margin = margin
        self._text = QGraphicsSimpleTextItem(self)
        self._text.setPos(margin, margin)
        self.setPen(Qt.PenStyle.NoPen)
        self.setZValue(z)

    @property
    def fill(self) -> QBrush:
        return self.brush()

    def dress(self, color: QColor, ground: QColor, font: QFont) -> None:
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
        """Put the point of the label that lies at `anchor` of its width and height to a pixel of the frame."""
        self.setPos(round(x - anchor[0] * self.rect().width()), round(y - anchor[1] * self.rect().height()))

    def _fit(self) -> None:
        inner = self._text.boundingRect()
        around = 2 * self._margin
        self.setRect(QRectF(0, 0, inner.width() + around if self._text.text() else 0, inner.height() + around))


def _symbol(canvas: Canvas, name: str, size: int, line: QColor | None, fill: QColor, width: float) -> QPixmap:
    """`width`: px of the line around."""
    pen = pg.mkPen(None) if line is None else pg.mkPen(line, width=width)
    screen = canvas.box.scene().views()[0].devicePixelRatioF() if canvas.box.scene() else 1.0
    scale = canvas.sharp or screen
    symbol = QPixmap.fromImage(renderSymbol(name, size, pen, pg.mkBrush(fill), dpr=scale))
    symbol.setDevicePixelRatio(scale)
    return symbol


class Mark(QGraphicsPixmapItem):
    """One symbol at one step, at half the plot's height. It moves thirty times a second."""

    def __init__(self, canvas: Canvas, symbol: str, size: int, z: float) -> None:
        super().__init__(canvas.frame)
        self._canvas, self._name, self._size = canvas, symbol, size
        self.step: float | None = None
        self._at = (0, 0)  # pixels
        self.setShapeMode(QGraphicsPixmapItem.ShapeMode.BoundingRectShape)
        self.setZValue(z)
        self.hide()
        canvas.box.sigTransformChanged.connect(self._place)

    def dress(self, line: QColor, fill: QColor, width: float = 2) -> None:
        symbol = _symbol(self._canvas, self._name, self._size, line, fill, width)
        self.setPixmap(symbol)
        self.setOffset(-symbol.deviceIndependentSize().width() / 2, -symbol.deviceIndependentSize().height() / 2)

    def show_at(self, step: float | None) -> None:
        """None hides it."""
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

    def __init__(self, canvas: Canvas, symbol: str, size: int, z: float, height: float = 0.5) -> None:
        super().__init__(canvas.frame)
        self._canvas, self._name, self._size, self._height = canvas, symbol, size, height
        self.steps = np.empty(0)
        self._there = np.empty(0, int)  # pixels across that bear a mark
        self._drawn: tuple = ()
        self._symbol = QPixmap()
        self.setShapeMode(QGraphicsPixmapItem.ShapeMode.BoundingRectShape)
        self.setZValue(z)
        self.hide()
        canvas.box.sigTransformChanged.connect(self._draw)

    def dress(self, line: QColor | None, fill: QColor, width: float = 2) -> None:
        """`width`: px of the line around."""
        self._symbol = _symbol(self._canvas, self._name, self._size, line, fill, width)
        self._drawn = ()
        self._draw()

    def show_at(self, steps: np.ndarray, height: float | None = None) -> None:
        """`height`: share of the plot's height, from its top."""
        self._height = self._height if height is None else height
        self.steps = steps
        self.setVisible(bool(len(steps)))
        self._draw()

    def getData(self) -> tuple[np.ndarray, np.ndarray]:
        return self.steps, np.full(len(self.steps), self._height)

    def _draw(self) -> None:
        """Draw the marks that are new, or all of them where the plot has moved or grown."""
        if not len(self.steps):
            self._drawn = ()
            return
        width, height = self._canvas.size
        scale = self._symbol.devicePixelRatio()
        half_wide, half_high = self._symbol.width() / scale / 2, self._symbol.height() / scale / 2
        across = np.unique(np.rint(self._canvas.across(self.steps)))
        across = across[(across > -half_wide) & (across < width + half_wide)]
        here = (width, height, self._height, self._canvas.across(0.0), self._canvas.across(1.0), scale)
        strip = self.pixmap()
        if here != self._drawn or not np.isin(self._there, across).all():
            self._drawn, self._there = here, np.empty(0)
            strip = QPixmap(max(round(width * scale), 1), self._symbol.height())
            strip.setDevicePixelRatio(scale)
            strip.fill(Qt.GlobalColor.transparent)
            self.setOffset(QPointF(0, round(height * self._height - half_high)))
        new = np.setdiff1d(across, self._there, assume_unique=True)
        if len(new):
            self.setPixmap(QPixmap())  # so that painting on it copies nothing
            painter = QPainter(strip)
            for x in new.tolist():
                painter.drawPixmap(QPointF(round(x - half_wide), 0), self._symbol)
            painter.end()
            self._there = across
            self.setPixmap(strip)
