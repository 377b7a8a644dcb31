"""A curve in parts: those that are full never change again, so that a frame costs what is new and not what is there."""

from __future__ import annotations

from functools import lru_cache

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
        self._path = QPainterPath()

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
        """A line through points that are all finite. A path that is there already is filled: to make one takes longer."""
        polygon, places = _polygon(len(steps))
        places[:, 0], places[:, 1] = steps, values
        self._path.clear()
        self._path.addPolygon(polygon)
        return self._path


@lru_cache(maxsize=256)
def _polygon(points: int) -> tuple[QPolygonF, np.ndarray]:
    """One of so many points, (points, 2), to be filled anew each time: to make it longer or shorter would let go of the interpreter lock."""
    polygon = create_qpolygonf(points)
    return polygon, ndarray_from_qpolygonf(polygon)


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
