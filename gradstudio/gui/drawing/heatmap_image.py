"""A heatmap of layers over steps: its bins, and the picture, of which only new columns are drawn."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QImage, QPixmap, QTransform
from PySide6.QtWidgets import QGraphicsPixmapItem, QGraphicsRectItem

from gradstudio.core.jit import READ_ONLY, jit
from gradstudio.core.unknown import BITS, UNKNOWN, known_mask
from gradstudio.gui.drawing.bins import Bins
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.cheap_frame import leave_unpainted
from gradstudio.gui.drawing.heatmap_colors import NOTHING, lookup_table

CAPACITY = 1024  # columns of the picture


@jit(f"void({READ_ONLY.format('float32', 2)}, int64, int64, float32[:, ::1])")
def _take(values: np.ndarray, count: int, width: int, bins: np.ndarray) -> None:
    steps, layers = values.shape
    for step in range(steps):
        largest = bins[(count + step) // width]
        for layer in range(layers):
            value = values[step, layer]
            if np.float64(value).view(np.int64) == BITS:
                continue
            nothing = np.float64(largest[layer]).view(np.int64) == BITS
            if nothing or (not value <= largest[layer] and not math.isnan(largest[layer])):
                largest[layer] = value


def merge_pairs(bins: np.ndarray) -> np.ndarray:
    """Return the maximum of every two bins, (bins, rows)."""
    one, other = bins[0::2], bins[1::2]
    return np.where(known_mask(one), np.where(known_mask(other), np.maximum(one, other), one), other)


class LayerBins(Bins):
    """The maximum of each bin of steps, for every layer: UNKNOWN where nothing was measured. Values are never below 0;
    a bin with a NaN or an Inf has that value."""

    def __init__(self, layers: int, capacity: int = CAPACITY, start: int = 0) -> None:
        super().__init__(capacity, start)
        self._values = np.full((capacity, layers), UNKNOWN, np.float32)

    def append(self, values: np.ndarray) -> None:
        """Add the values of the next steps, (steps, layers)."""
        if values.shape[1] != self._values.shape[1]:
            raise ValueError(f"{values.shape[1]} layers where there are {self._values.shape[1]}")
        if not len(values):
            return
        self._make_room(len(values))
        _take(values, self.count, self.width, self._values)
        self.count += len(values)

    def picture(self, first: int = 0) -> np.ndarray:
        """Return the bins from `first` on, (bins, layers)."""
        return self._values[first : self.used]

    def _merge(self) -> None:
        half = self._capacity // 2
        self._values[:half], self._values[half:] = merge_pairs(self._values), UNKNOWN


class Heatmap(QGraphicsRectItem):
    """A picture of indices into a table of colours. It is the texture of a brush, which Qt paints from the memory that
    the indices are written to: new columns need no new picture."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas.data)
        leave_unpainted(self)
        self.setZValue(1)
        self._stretched = (0.0, 1.0)
        self._live, self._whole = QGraphicsRectItem(self), QGraphicsPixmapItem(self)
        self._live.setPen(Qt.PenStyle.NoPen)
        self.clear(0)

    @property
    def image(self) -> np.ndarray:
        """The visible indices, (rows, columns) uint8."""
        return self._index[:, : self._columns]

    def clear(self, rows: int) -> None:
        self._columns = 0
        self._index = np.full((rows, CAPACITY), NOTHING, np.uint8)
        self._colors: np.ndarray | None = None
        self._live.setBrush(Qt.BrushStyle.NoBrush)  # the old picture must not be read any more
        self._live.setRect(0, 0, CAPACITY, rows)

    def put(self, first: int, index: np.ndarray, colors: np.ndarray) -> None:
        """Show these columns, (rows, columns), from column `first` on, and none after them. `colors` are those of the
        indices, (256,) uint32."""
        before, self._columns = self._columns, first + index.shape[1]
        self._index[:, first : self._columns] = index
        if self._columns < before:
            self._index[:, self._columns : before] = NOTHING
        if colors is not self._colors:
            self._colors = colors
            size = (CAPACITY, len(self._index), CAPACITY)
            picture = QImage(self._index.data, *size, QImage.Format.Format_Indexed8)
            picture.setColorTable(colors.tolist())
            self._live.setBrush(QBrush(picture))
        self._live.update(first, 0, max(self._columns, before) - first, len(index))

    def stretch(self, first: float, width: float) -> None:
        """Start the picture at a step, with columns of `width` steps."""
        if (first, width) != self._stretched:
            self._stretched = (first, width)
            self.setTransform(QTransform(width, 0, 0, 1, first, 0))

    def join(self, joined: bool) -> None:
        """Show an ordinary picture, for a file, or paint from memory again."""
        joined = joined and self.image.size > 0
        self._live.setVisible(not joined)
        if not joined:
            self._whole.setPixmap(QPixmap())
            return
        colors = lookup_table()[self.image]
        rows, columns = colors.shape
        image = QImage(colors.data, columns, rows, colors.strides[0], QImage.Format.Format_RGB32)
        self._whole.setPixmap(QPixmap.fromImage(image.copy()))  # a copy, as Qt would go on reading the array
