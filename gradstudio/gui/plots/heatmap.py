"""One metric of every layer over steps as a picture: the bins that it is made of, and the picture, of which only what is new is drawn."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QPixmap, QTransform
from PySide6.QtWidgets import QGraphicsPixmapItem, QGraphicsRectItem

from gradstudio.gui.plots.canvas import Canvas, leave_unpainted
from gradstudio.gui.plots.color_bar import lookup_table
from gradstudio.gui.plots.envelope import PLACES

STRIP = 64  # columns of the picture that are drawn anew when one of them changes


class LayerBins:
    """One metric of every layer, the largest of each bin of steps; a bin with a NaN or Inf in it is remembered as such."""

    def __init__(self, layers: int, capacity: int = 1024, start: int = 0) -> None:
        self.start, self.width, self.count = start, 1, 0
        self._capacity = capacity
        self._values = np.full((capacity, layers), np.nan, np.float32)
        self._nonfinite = np.zeros((capacity, layers), bool)

    def append(self, values: np.ndarray) -> None:
        """Take in the next steps, (n, layers)."""
        while self.count + len(values) > self._capacity * self.width:
            half = self._capacity // 2
            self._values[:half], self._values[half:] = np.fmax(self._values[0::2], self._values[1::2]), np.nan
            self._nonfinite[:half], self._nonfinite[half:] = self._nonfinite[0::2] | self._nonfinite[1::2], False
            self.width *= 2
        if not len(values):
            return
        into = slice(self.count // self.width, (self.count + len(values) - 1) // self.width + 1)
        starts = PLACES[: into.stop - into.start] * self.width - (self.count - into.start * self.width)
        starts[0] = 0
        finite = np.isfinite(values)
        if not np.logical_and.reduce(finite, axis=None):
            self._nonfinite[into] |= np.logical_or.reduceat(~finite, starts)
            values = np.where(finite, values, np.nan)
        shown = self._values[into]
        np.fmax(shown, np.fmax.reduceat(values, starts), out=shown)
        self.count += len(values)

    def picture(self, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Values and non-finite flags of the bins from `first` on, (bins, layers)."""
        used = -(-self.count // self.width)
        return self._values[first:used], self._nonfinite[first:used]


class Heatmap(QGraphicsRectItem):
    """A picture of indices into a table of colours, in strips: those that are full never change again, as the parts of a curve."""

    def __init__(self, canvas: Canvas, capacity: int = 1024) -> None:
        super().__init__(canvas.data)
        leave_unpainted(self)
        self.setZValue(1)
        self._capacity = capacity
        self._stretched = (0.0, 1.0)
        self._whole = QGraphicsPixmapItem(self)
        self._strips: list[QGraphicsPixmapItem] = []
        self._filled = -1  # the strip that is being filled
        self.clear(0)

    @property
    def image(self) -> np.ndarray:
        """What is shown, (rows, columns) uint8."""
        return self._index[:, : self._columns]

    def clear(self, rows: int) -> None:
        self._columns = 0
        self._index = np.zeros((rows, self._capacity), np.uint8)
        self._wipe()

    def put(self, first: int, index: np.ndarray, table: np.ndarray) -> None:
        """Show these columns, (rows, columns), from column `first` on, and none after them. `table`: colours, (256,) uint32."""
        before, self._columns = self._columns, first + index.shape[1]
        self._index[:, first : self._columns] = index
        if self._columns < before:
            self._wipe()
            first = 0
        for strip in range(first // STRIP, -(-self._columns // STRIP)):
            start, stop = strip * STRIP, min((strip + 1) * STRIP, self._columns)
            new = max(first, start) if strip == self._filled else start
            self._show(strip, new - start, table.take(self._index[:, new:stop]))

    def stretch(self, first: float, width: float) -> None:
        """Begin at a step, with columns so many steps wide."""
        if (first, width) != self._stretched:
            self._stretched = (first, width)
            self.setTransform(QTransform(width, 0, 0, 1, first, 0))

    def join(self, joined: bool) -> None:
        """Be one picture, for a file whose viewer would leave seams between the strips, or strips again."""
        joined = joined and self.image.size > 0
        for strip in self._strips:
            strip.setVisible(not joined)
        if not joined:
            self._whole.setPixmap(QPixmap())
            return
        colors = lookup_table()[self.image]
        rows, columns = colors.shape
        image = QImage(colors, columns, rows, colors.strides[0], QImage.Format.Format_RGB32)
        self._whole.setPixmap(QPixmap.fromImage(image.copy()))  # a picture of its own, for Qt would go on reading the array

    def _wipe(self) -> None:
        self._filled = -1
        for strip in self._strips:
            strip.setPixmap(QPixmap())

    def _show(self, number: int, first: int, colors: np.ndarray) -> None:
        """Put these colours, (rows, columns), into a strip from its column `first` on."""
        while len(self._strips) <= number:
            strip = QGraphicsPixmapItem(self)
            strip.setShapeMode(QGraphicsPixmapItem.ShapeMode.BoundingRectShape)
            strip.setPos(len(self._strips) * STRIP, 0)
            self._strips.append(strip)
        if first == 0:
            self._filled, self._picture = number, QImage(STRIP, len(colors), QImage.Format.Format_ARGB32_Premultiplied)
            self._picture.fill(Qt.GlobalColor.transparent)
            self._colors = np.frombuffer(self._picture.bits(), np.uint32).reshape(len(colors), STRIP)
        self._colors[:, first : first + colors.shape[1]] = colors
        self._strips[number].setPixmap(QPixmap.fromImage(self._picture))
