"""A curve in parts: those that are full never change again, so that a frame costs what is new and not what is there."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from pyqtgraph.functions import create_qpolygonf, ndarray_from_qpolygonf
from PySide6.QtGui import QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsPathItem, QGraphicsRectItem

from gradstudio.gui.plots.canvas import Canvas, leave_unpainted


class Curve(QGraphicsRectItem):
    """Qt's own path items, one a part, in the coordinates of the data. A value that is not finite is a gap."""

    def __init__(self, canvas: Canvas, z: float) -> None:
        super().__init__(canvas.data)
        leave_unpainted(self)
        self.setZValue(z)
        self._pen = QPen()
        self._items: list[QGraphicsPathItem] = []
        self._points: list[tuple[np.ndarray, np.ndarray]] = []

    def dress(self, pen: QPen) -> None:
        """A pen of width 0 is one pixel wide whatever the range."""
        self._pen = pen
        for item in self._items:
            item.setPen(pen)

    def put(self, part: int, steps: np.ndarray, values: np.ndarray) -> None:
        """Draw a part anew, or the one that comes next, from the end of the part before it on."""
        while len(self._items) <= part:
            item = QGraphicsPathItem(self)
            item.setPen(self._pen)
            self._items.append(item)
            self._points.append((np.empty(0), np.empty(0)))
        end = self._points[part - 1] if part else (np.empty(0), np.empty(0))
        steps, values = _widen_lone_points(np.concatenate((end[0][-1:], steps)), np.concatenate((end[1][-1:], values)))
        own = steps > end[0][-1] + 0.45 if part and len(end[0]) else slice(None)  # a dash reaches 0.4 to each side
        self._points[part] = (steps[own], values[own])
        self._items[part].setPath(_path(steps, values))

    def cut(self, parts: int) -> None:
        """Forget all parts but the first so many."""
        for item in self._items[parts:]:
            item.setPath(QPainterPath())
        del self._points[parts:]
        self._points += [(np.empty(0), np.empty(0))] * (len(self._items) - len(self._points))

    def getData(self) -> tuple[np.ndarray, np.ndarray]:
        """Every point that is drawn."""
        if not self._points:
            return np.empty(0), np.empty(0)
        return np.concatenate([steps for steps, _ in self._points]), np.concatenate([values for _, values in self._points])


def _path(steps: np.ndarray, values: np.ndarray) -> QPainterPath:
    finite = np.isfinite(values)
    if not finite.all():
        return pg.arrayToQPath(steps, values, connect="finite") if finite.any() else QPainterPath()
    points = create_qpolygonf(len(steps))
    places = ndarray_from_qpolygonf(points)
    places[:, 0], places[:, 1] = steps, values
    path = QPainterPath()
    path.addPolygon(points)
    return path


def _widen_lone_points(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point between two gaps becomes a short dash: a line through one point alone would not be seen."""
    finite = np.isfinite(values)
    if finite.all() and len(values) > 1:
        return steps, values
    there = np.pad(finite, 1)
    lone = np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:])
    if not len(lone):
        return steps, values
    ends = np.insert(steps, lone + 1, steps[lone] + 0.4)
    ends[lone + np.arange(len(lone))] -= 0.4
    return ends, np.insert(values, lone + 1, values[lone])
