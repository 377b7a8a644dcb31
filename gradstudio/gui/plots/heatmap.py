"""One metric of every layer over steps as a picture: the bins that it is made of, and the picture, of which only what is new is drawn."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QImage, QPixmap, QTransform
from PySide6.QtWidgets import QGraphicsPixmapItem, QGraphicsRectItem

from gradstudio.core.compiled import READ_ONLY, compiled
from gradstudio.gui.plots.canvas import Canvas, leave_unpainted
from gradstudio.gui.plots.color_bar import NOTHING, lookup_table


@compiled(f"void({READ_ONLY.format('float32', 2)}, int64, int64, float32[:, ::1])")
def _take(values: np.ndarray, count: int, width: int, bins: np.ndarray) -> None:
    steps, layers = values.shape
    for step in range(steps):
        largest = bins[(count + step) // width]
        for layer in range(layers):
            value = values[step, layer]
            if not value <= largest[layer] and not math.isnan(largest[layer]):
                largest[layer] = value


class LayerBins:
    """One metric of every layer, none of them below 0: the largest of each bin of steps, which is Inf or NaN where any of it is."""

    def __init__(self, layers: int, capacity: int = 1024, start: int = 0) -> None:
        self.start, self.width, self.count = start, 1, 0
        self._capacity = capacity
        self._values = np.zeros((capacity, layers), np.float32)

    def append(self, values: np.ndarray) -> None:
        """Take in the next steps, (n, layers)."""
        if values.shape[1] != self._values.shape[1]:
            raise ValueError(f"{values.shape[1]} layers where there are {self._values.shape[1]}")
        while self.count + len(values) > self._capacity * self.width:
            half = self._capacity // 2
            self._values[:half], self._values[half:] = np.maximum(self._values[0::2], self._values[1::2]), 0
            self.width *= 2
        if not len(values):
            return
        _take(values, self.count, self.width, self._values)
        self.count += len(values)

    def picture(self, first: int = 0) -> np.ndarray:
        """The bins from `first` on, (bins, layers)."""
        return self._values[first : -(-self.count // self.width)]


class Heatmap(QGraphicsRectItem):
    """A picture of indices into a table of colours. It is the texture of a brush, which Qt paints from the memory that they are written to:
    what is new is written there, and no picture is made of it."""

    def __init__(self, canvas: Canvas, capacity: int = 1024) -> None:
        super().__init__(canvas.data)
        leave_unpainted(self)
        self.setZValue(1)
        self._capacity = capacity
        self._stretched = (0.0, 1.0)
        self._live, self._whole = QGraphicsRectItem(self), QGraphicsPixmapItem(self)
        self._live.setPen(Qt.PenStyle.NoPen)
        self.clear(0)

    @property
    def image(self) -> np.ndarray:
        """What is shown, (rows, columns) uint8."""
        return self._index[:, : self._columns]

    def clear(self, rows: int) -> None:
        self._columns = 0
        self._index = np.full((rows, self._capacity), NOTHING, np.uint8)
        self._colors: np.ndarray | None = None
        self._live.setBrush(Qt.BrushStyle.NoBrush)  # the old picture is not to be read any more
        self._live.setRect(0, 0, self._capacity, rows)

    def put(self, first: int, index: np.ndarray, colors: np.ndarray) -> None:
        """Show these columns, (rows, columns), from column `first` on, and none after them. `colors`: of the indices, (256,) uint32."""
        before, self._columns = self._columns, first + index.shape[1]
        self._index[:, first : self._columns] = index
        if self._columns < before:
            self._index[:, self._columns : before] = NOTHING
        if colors is not self._colors:
            self._colors = colors
            picture = QImage(self._index, self._capacity, len(self._index), self._capacity, QImage.Format.Format_Indexed8)
            picture.setColorTable(colors.tolist())
            self._live.setBrush(QBrush(picture))
        self._live.update(first, 0, max(self._columns, before) - first, len(index))

    def stretch(self, first: float, width: float) -> None:
        """Begin at a step, with columns so many steps wide."""
        if (first, width) != self._stretched:
            self._stretched = (first, width)
            self.setTransform(QTransform(width, 0, 0, 1, first, 0))

    def join(self, joined: bool) -> None:
        """Be a picture as any other, for a file, or be painted from memory again."""
        joined = joined and self.image.size > 0
        self._live.setVisible(not joined)
        if not joined:
            self._whole.setPixmap(QPixmap())
            return
        colors = lookup_table()[self.image]
        rows, columns = colors.shape
        image = QImage(colors, columns, rows, colors.strides[0], QImage.Format.Format_RGB32)
        self._whole.setPixmap(QPixmap.fromImage(image.copy()))  # a picture of its own, for Qt would go on reading the array
