"""A band from the minimum to the maximum of a curve over groups of steps: the range of single steps, without noise."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QPainterPath, QPolygonF
from PySide6.QtWidgets import QGraphicsPathItem

from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.series import Series
from gradstudio.gui.theme import theme

PIECES = 120  # of the view, at most


class Spread(QGraphicsPathItem):
    """The band of one series, on the scale of that series."""

    def __init__(self, canvas: Canvas, role: str) -> None:
        super().__init__(canvas.data)
        self._places = canvas.places
        self._role = role
        self.setZValue(8)
        self.setPen(Qt.PenStyle.NoPen)
        self.restyle()

    def restyle(self) -> None:
        self.setBrush(theme.color(self._role, 70))

    def draw(self, series: Series, first: float, last: float) -> None:
        """Draw the band of the visible steps."""
        path = QPainterPath()
        for steps, low, high in pieces(series, first, last):
            places = self._places.of(np.array(steps)).tolist()
            around = [QPointF(*point) for point in zip(places, high, strict=True)]
            around += [QPointF(*point) for point in zip(reversed(places), reversed(low), strict=True)]
            path.addPolygon(QPolygonF(around))
        self.setPath(path)


def pieces(series: Series, first: float, last: float) -> list[tuple[list[float], list[float], list[float]]]:
    """Return steps, minima and maxima of each stretch of the band without a gap, in the units of the axis."""
    least, greatest, start, width = series.envelope.bins(series.index)
    if not len(least):
        return []
    together = max(1, int((last - first) / width / PIECES))  # bins
    starts = np.arange(0, len(least), together)
    low, high = np.fmin.reduceat(least, starts), np.fmax.reduceat(greatest, starts)
    low, high = series.scale(low), series.scale(high)
    stops = np.minimum(starts + together, len(least))
    middles = start + (starts + stops) / 2 * width - 0.5
    there = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(int)))
    return [
        (middles[begin:end].tolist(), low[begin:end].tolist(), high[begin:end].tolist())
        for begin, end in zip(edges[::2], edges[1::2], strict=True)
    ]
