"""Dots at the points of a curve that has few of them, in pixels, so that they stay round whatever the range."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsPathItem

from gradstudio.gui.drawing.canvas import Canvas

RADIUS = 2.5  # px
APART = 3  # px across: among points that are closer only the first has a dot


class Dots(QGraphicsPathItem):
    """Dots at any number of points, in the coordinates of the data. A non-finite value has none."""

    def __init__(self, canvas: Canvas, z: float) -> None:
        super().__init__(canvas.frame)
        self._canvas = canvas
        self._steps = self._values = np.empty(0)
        self.setPen(Qt.PenStyle.NoPen)
        self.setZValue(z)
        canvas.box.sigTransformChanged.connect(self._place)

    def apply_style(self, color: QColor, *, hollow: bool = False) -> None:
        self.setBrush(Qt.BrushStyle.NoBrush if hollow else color)
        self.setPen(QPen(color, 1.2) if hollow else Qt.PenStyle.NoPen)

    def show_at(self, steps: np.ndarray, values: np.ndarray) -> None:
        there = np.isfinite(values)
        self._steps, self._values = steps[there], values[there]
        self._place()

    def getData(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps and the values of the points."""
        return self._steps, self._values

    def _place(self) -> None:
        """Position the dots for the ranges and the size."""
        transform, path = self._canvas.data.transform(), QPainterPath()
        across = self._canvas.across(self._steps)
        inside = np.flatnonzero((across > -RADIUS) & (across < self._canvas.size[0] + RADIUS))
        first = inside[np.unique(across[inside] // APART, return_index=True)[1]]
        for x, value in zip(across[first].tolist(), self._values[first].tolist(), strict=True):
            path.addEllipse(QPointF(x, transform.m22() * value + transform.dy()), RADIUS, RADIUS)
        self.setPath(path)
