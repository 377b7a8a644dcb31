"""Axes with human-readable numbers: 1, 10, 10⁴; 2¹⁶; and steps as whole numbers."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtWidgets import QGraphicsPixmapItem

from gradstudio.core.text import number, power, short_name
from gradstudio.gui.drawing import pyqtgraph_internals
from gradstudio.gui.drawing.cheap_frame import leave_unpainted
from gradstudio.gui.drawing.row_groups import Group, finer, groups
from gradstudio.gui.theme import theme

LEFT_WIDTH = 80  # px: one left edge for all plots, wide enough for the names of layers
RIGHT_WIDTH = 64
FARTHEST = 300  # decades from 1: closer, 10 to that power is a normal float
HIGH = 14  # px of the name of a layer, like all sizes for texts here before zooming
CLOSEST = 0.8  # of that, between two names, most of which have more room
SPARSE = 3  # this many times as many names as modules: if there is so much room, the modules in them are named
LONGEST = 14  # letters of a layer's name that fit there
OVER = 6  # px at normal text that a number may extend beyond the end of its axis, like a 0 at its foot


class Axis(pg.AxisItem):
    """An axis that is drawn once into a picture, which Qt shows until the axis changes."""

    _values_shown, _grid_shown = True, False

    def __init__(self, orientation: str) -> None:
        super().__init__(orientation)
        self._is_picture = pyqtgraph_internals.axes_are_pictures()  # otherwise pyqtgraph paints it
        leave_unpainted(self, self._is_picture)
        self.enableAutoSIPrefix(False)  # there is no label, which would be laid out at every change of range
        self._shown = QGraphicsPixmapItem(self)
        self._shown.setShapeMode(QGraphicsPixmapItem.ShapeMode.BoundingRectShape)
        self._scale = 0.0  # device pixel ratio

    def settle(self, scale: float) -> None:
        """Redraw the axis if it has changed; `scale` is the device pixel ratio."""
        if not self._is_picture or (scale == self._scale and not pyqtgraph_internals.is_stale(self)):
            return
        if self._is_empty:
            self._shown.hide()
            self._mark_drawn(scale)
            return
        bounds = self.boundingRect().toAlignedRect()
        if bounds.isEmpty():
            return
        picture = QPixmap(bounds.size() * scale)
        picture.setDevicePixelRatio(scale)
        picture.fill(Qt.GlobalColor.transparent)
        with QPainter(picture) as painter:
            painter.translate(-bounds.topLeft())
            pyqtgraph_internals.draw_axis(self, painter)
        self._mark_drawn(scale)
        self._shown.setPixmap(picture)
        self._shown.setOffset(bounds.topLeft())
        self._shown.show()

    def draw_as_vectors(self, vectors: bool) -> None:
        """Have pyqtgraph draw the axis as lines and letters, for a figure; or show the picture again, from the next
        call of `settle` on."""
        if not self._is_picture or self._is_empty:
            return
        leave_unpainted(self, not vectors)
        self._shown.setVisible(not vectors)
        self.drop_picture()

    def drop_picture(self) -> None:
        """Have the axis redrawn."""
        self.setTickSpacing()  # which changes nothing, as each axis chooses its own ticks

    def boundingRect(self) -> QRectF:
        over = OVER * theme.zoom if self.orientation in ("left", "right") else 0
        return super().boundingRect().adjusted(0, -over, 0, over)

    def labelString(self) -> str:
        return ""  # there is no label, which pyqtgraph regenerates some ten times in each axis, as HTML with a style

    def setStyle(self, **kwargs: object) -> None:
        self._values_shown = bool(kwargs.get("showValues", self._values_shown))
        super().setStyle(**kwargs)

    def setGrid(self, grid: float | bool) -> None:
        self._grid_shown = grid is not False
        super().setGrid(grid)

    @property
    def _is_empty(self) -> bool:
        return not self._values_shown and not self._grid_shown

    def _mark_drawn(self, scale: float) -> None:
        self._scale = scale
        pyqtgraph_internals.mark_drawn(self)


class LogAxis(Axis):
    """An axis whose positions are log10 of the values. Ticks are at decades, and at 2 and 5 if there are few."""

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        low, high = math.floor(minVal), math.ceil(maxVal)
        if size < 2 * CLOSEST * HIGH * theme.zoom and high - low < 4:  # two numbers would overlap
            inside = [float(d) for d in range(low, high + 1) if minVal <= d <= maxVal]
            inside = inside or [
                math.log10(value) for value in round_numbers(10.0**minVal, 10.0**maxVal, 2) if value > 0
            ]
            return [(1.0, inside[-1:])]
        every = max(1, math.ceil((high - low) * 22 * theme.zoom / max(size, 1)))
        decades = [float(d) for d in _multiples(every, low, high)]
        inside = [d for d in decades if minVal <= d <= maxVal]
        while len(inside) < 2 and every > 1:  # a single number does not define a scale
            every = every * 2 // 3
            ticks = [float(d) for d in _multiples(every, low, high) if minVal <= d <= maxVal]
            inside = [ticks[0], ticks[-1]] if len(ticks) > 2 else ticks
        if len(inside) >= 3 or maxVal - minVal > 3:
            return [(float(every), inside)]
        if maxVal - minVal > 0.5 or not -FARTHEST < minVal < maxVal < FARTHEST:
            for parts in ((1, 2, 5), (1, 3), (1,)):  # fewer if the plot is low
                places = [d + math.log10(m) for d in range(low, high + 1) for m in parts]
                ticks = [place for place in places if minVal <= place <= maxVal]
                if len(ticks) * 12 * theme.zoom <= size or len(ticks) <= 2:
                    break
            if len(ticks) > 1 or not -FARTHEST < minVal < maxVal < FARTHEST:
                return [(1.0, ticks)]
        values = round_numbers(10**minVal, 10**maxVal, max(int(size / (40 * theme.zoom)), 2))
        if len(values) < 2:
            values = round_numbers(10**minVal, 10**maxVal, 5)
        return [(0.1, [math.log10(value) for value in values if value > 0])]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [self._text(value) for value in values]

    @staticmethod
    def _text(position: float) -> str:
        exponent = round(position)
        if abs(position - exponent) < 1e-6 and not -3 <= exponent <= 3:
            return power(10, exponent)
        return number(10.0**position) if -FARTHEST < position < FARTHEST else power(10, exponent)


class EitherAxis(LogAxis):
    """A log axis, or a linear one for values that may be negative or at the user's choice."""

    linear = False

    def make_linear(self, linear: bool) -> None:
        if linear != self.linear:
            self.linear = linear
            self.drop_picture()

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        if self.linear:
            return [(1.0, _linear_ticks(minVal, maxVal, size, 40))]
        return super().tickValues(minVal, maxVal, size)

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [number(value) for value in values] if self.linear else super().tickStrings(values, scale, spacing)


class Log2Axis(Axis):
    """An axis whose positions are log2 of the values; ticks are at whole powers."""

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        every = max(1, math.ceil((maxVal - minVal) * 18 * theme.zoom / max(size, 1)))
        return [(float(every), [float(p) for p in _multiples(every, math.ceil(minVal), math.floor(maxVal))])]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [power(2, round(value)) for value in values]


class LinearAxis(Axis):
    """An axis with ticks at round numbers, at least two of them."""

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        return [(1.0, _linear_ticks(minVal, maxVal, size, 22))]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [number(value) for value in values]


class StepAxis(Axis):
    """An axis of optimizer steps: whole numbers only."""

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        values = _steps(minVal, maxVal, max(int(size / (90 * theme.zoom)), 2))
        return [(1.0, values if len(values) > 1 else _steps(minVal, maxVal, 4))]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [f"{int(value):,}" for value in values]


class LayerAxis(Axis):
    """An axis with the name of each layer at the middle of its row; if rows are too low for that, with the name of each
    module at the middle of its rows, as far as there is room."""

    names: tuple[str, ...] = ()
    _told: dict[float, str]  # the texts of the ticks

    def show_names(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.drop_picture()

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        rows = len(self.names)
        room = max(size, 1) / (HIGH * theme.zoom)  # number of names above each other
        if rows <= room:
            self._told = {row + 0.5: name for row, name in enumerate(self.names)}
        else:
            self._told = dict(self._modules(room))
        return [(1.0, list(self._told))]

    def _modules(self, room: float) -> list[tuple[float, str]]:
        """Return the positions and names of modules, as many as there is room for, including the first and the last."""
        modules = groups(self.names, int(room)) or [Group(name, row, row + 1) for row, name in enumerate(self.names)]
        if SPARSE * len(modules) <= room:  # for example if 60 layers are all in one module
            modules = finer(self.names, len(modules)) or modules
        apart = len(self.names) / room * CLOSEST
        told: list[tuple[float, str]] = []
        for name, first, stop in modules:
            middle = (first + stop) / 2
            if stop == len(self.names):
                while len(told) > 1 and middle - told[-1][0] < apart:
                    told.pop()
            if not told or middle - told[-1][0] >= apart:  # otherwise it would overlap the name above
                told.append((middle, name))
        return told

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [short_name(self._told.get(value, ""), LONGEST) for value in values]


def round_numbers(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers between two values, 1, 2 or 5 times a power of ten apart."""
    raw = high / count - low / count  # which is finite between any two floats
    if not raw > 0:
        return [low]
    unit = 10.0 ** max(math.floor(math.log10(raw)), -FARTHEST)
    step = min(unit * next(m for m in (1, 2, 5, 10) if m * unit >= raw * 0.999), 1e308)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(v) for v in np.arange(first, last + 1) * step][:50]


def _linear_ticks(low: float, high: float, size: float, apart: int) -> list[float]:
    """Return round numbers some `apart` px from each other on an axis of `size` px, at least two of them."""
    count = max(int(size / (apart * theme.zoom)), 2)
    values = round_numbers(low, high, count)
    if len(values) < 2:
        values = round_numbers(low, high, 5)  # two steps of a fifth, or at most half, of the axis always fit
    crowded = len(values) > 2 and len(values) * HIGH * theme.zoom > size
    return [values[0], values[-1]] if crowded else values


def _steps(low: float, high: float, count: int) -> list[float]:
    return [value for value in round_numbers(low, high, count) if value == int(value) and value >= 0]


def _multiples(every: int, low: int, high: int) -> range:
    """Return the multiples of a number in a range. An axis may span 10 to the 9 decades for a moment, if it was linear
    and the next run's is not."""
    return range(-(-low // every) * every, high + 1, every)
