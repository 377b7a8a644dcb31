"""A curve in parts: those that are full never change again, so that a frame costs what is new and not what is there."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from pyqtgraph.functions import create_qpolygonf, ndarray_from_qpolygonf
from PySide6.QtGui import QPainterPath, QPen, QPolygonF
from PySide6.QtWidgets import QGraphicsPathItem, QGraphicsRectItem

from gradstudio.gui.plots.canvas import Canvas, leave_unpainted

_NOTHING = (np.empty(0), np.empty(0))


class Curve(QGraphicsRectItem):
    """Qt's own path items, one a part, in the coordinates of the data. A value that is not finite is a gap."""

    def __init__(self, canvas: Canvas, z: float) -> None:
        super().__init__(canvas.data)
        leave_unpainted(self)
        self.setZValue(z)
        self._pen = QPen()
        self._items: list[QGraphicsPathItem] = []
        self._points: list[tuple[np.ndarray, np.ndarray]] = []
        self._path, self._polygon, self._places = QPainterPath(), QPolygonF(), np.empty((0, 2))

    def dress(self, pen: QPen) -> None:
        """A pen of width 0 is one pixel wide whatever the range."""
        self._pen = pen
        for item in self._items:
            item.setPen(pen)

    def put(self, part: int, steps: np.ndarray, values: np.ndarray, *, whole: bool = False) -> None:
        """Draw a part anew, or the one that comes next. All but the first begin with the last point of the part before. `whole`: known to
        be finite."""
        while len(self._items) <= part:
            item = QGraphicsPathItem(self)
            item.setPen(self._pen)
            self._items.append(item)
            self._points.append(_NOTHING)
        if len(steps) > 1 and (whole or np.logical_and.reduce(np.isfinite(values))):
            path = self._unbroken(steps, values)
        else:
            steps, values = _widen_lone_points(steps, values)
            path = pg.arrayToQPath(steps, values, connect="finite") if np.isfinite(values).any() else QPainterPath()
        self._points[part] = (steps, values)
        self._items[part].setPath(path)

    def cut(self, parts: int) -> None:
        """Forget all parts but the first so many."""
        for item in self._items[parts:]:
            item.setPath(QPainterPath())
        del self._points[parts:]
        self._points += [_NOTHING] * (len(self._items) - len(self._points))

    def getData(self) -> tuple[np.ndarray, np.ndarray]:
        """Every point that is drawn, once."""
        drawn, last = [_NOTHING], -np.inf
        for steps, values in self._points:
            new = steps > last + 0.45  # a dash reaches 0.4 to each side
            drawn.append((steps[new], values[new]))
            last = steps[-1] if len(steps) else last
        return np.concatenate([steps for steps, _ in drawn]), np.concatenate([values for _, values in drawn])

    def _unbroken(self, steps: np.ndarray, values: np.ndarray) -> QPainterPath:
        """A line through points that are all finite. A polygon and a path that are there already are filled: to make them takes
        longer."""
        if len(steps) > len(self._places):
            self._polygon = create_qpolygonf(2 * len(steps))
            self._places = ndarray_from_qpolygonf(self._polygon)
        self._polygon.resize(len(steps))  # where it lies it stays, as long as it does not grow
        self._places[: len(steps), 0], self._places[: len(steps), 1] = steps, values
        self._path.clear()
        self._path.addPolygon(self._polygon)
        return self._path


def _widen_lone_points(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point between two gaps becomes a short dash: a line through one point alone would not be seen."""
    finite = np.isfinite(values)
    there = np.pad(finite, 1)
    lone = np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:])
    if not len(lone):
        return steps, values
    ends = np.insert(steps, lone + 1, steps[lone] + 0.4)
    ends[lone + np.arange(len(lone))] -= 0.4
    return ends, np.insert(values, lone + 1, values[lone])
