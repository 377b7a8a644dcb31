"""A curve in parts. A full part never changes again, so a frame costs only what is new."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsPathItem, QGraphicsRectItem

from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.cheap_frame import leave_unpainted
from gradstudio.gui.drawing.pyqtgraph_internals import polygon

_NOTHING = (np.empty(0), np.empty(0))


class Curve(QGraphicsRectItem):
    """A curve of Qt path items, one per part, in the coordinates of the data. A non-finite value is a gap."""

    def __init__(self, canvas: Canvas, z: float) -> None:
        super().__init__(canvas.data)
        self._places = canvas.places
        leave_unpainted(self)
        self.setZValue(z)
        self._pen = QPen()
        self._items: list[QGraphicsPathItem] = []
        self._points: list[tuple[np.ndarray, np.ndarray]] = []
        self._path = QPainterPath()

    def apply_style(self, pen: QPen) -> None:
        """Use a pen; one of width 0 is one pixel wide whatever the range."""
        self._pen = pen
        for item in self._items:
            item.setPen(pen)

    def put(self, part: int, steps: np.ndarray, values: np.ndarray, *, whole: bool = False) -> None:
        """Redraw a part, or draw the next one. Each part but the first begins with the last point of the part before.
        `whole`: all values are known to be finite."""
        while len(self._items) <= part:
            item = QGraphicsPathItem(self)
            item.setPen(self._pen)
            self._items.append(item)
            self._points.append(_NOTHING)
        if len(steps) > 1 and (whole or np.logical_and.reduce(np.isfinite(values))):
            path = self._unbroken(self._places.of(steps), values)
        else:
            steps, values = _widen_lone_points(steps, values)
            drawn = np.isfinite(values).any()
            path = pg.arrayToQPath(self._places.of(steps), values, connect="finite") if drawn else QPainterPath()
        self._points[part] = (steps, values)
        self._items[part].setPath(path)

    def cut(self, parts: int) -> None:
        """Keep the first `parts` parts and drop the others."""
        for item in self._items[parts:]:
            item.setPath(QPainterPath())
        del self._points[parts:]
        self._points += [_NOTHING] * (len(self._items) - len(self._points))

    def getData(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps and values of every point that is drawn, each once."""
        drawn, last = [_NOTHING], -np.inf
        for steps, values in self._points:
            new = steps > last + 0.45  # a dash extends 0.4 to each side
            drawn.append((steps[new], values[new]))
            last = steps[-1] if len(steps) else last
        return np.concatenate([steps for steps, _ in drawn]), np.concatenate([values for _, values in drawn])

    def _unbroken(self, steps: np.ndarray, values: np.ndarray) -> QPainterPath:
        """Return a line through points that are all finite. A single path is refilled again and again, as a new one
        takes longer."""
        ready = polygon(len(steps))
        if ready is None:
            return pg.arrayToQPath(steps, values)
        line, places = ready
        places[:, 0], places[:, 1] = steps, values
        self._path.clear()
        self._path.addPolygon(line)
        return self._path


def _widen_lone_points(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn each point between two gaps into a short dash: a line through a single point would be invisible."""
    finite = np.isfinite(values)
    there = np.pad(finite, 1)
    lone = np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:])
    if not len(lone):
        return steps, values
    ends = np.insert(steps, lone + 1, steps[lone] + 0.4)
    ends[lone + np.arange(len(lone))] -= 0.4
    return ends, np.insert(values, lone + 1, values[lone])
