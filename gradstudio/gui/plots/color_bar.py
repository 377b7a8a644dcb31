"""The colours of the layers plot and the bar that tells their values. Non-finite has a colour of its own."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gradstudio.core.compiled import compiled
from gradstudio.core.text import power
from gradstudio.gui.plots import axes
from gradstudio.gui.theme import theme

TOP, NONFINITE, NOTHING = 253, 254, 255  # indices into the table: 0 to TOP is viridis, and the last is clear


@lru_cache(maxsize=4)
def _table(nonfinite: str) -> np.ndarray:
    colors = pg.colormap.get("viridis").getLookupTable(nPts=TOP + 1)
    bad = QColor(nonfinite)
    red, green, blue = np.vstack([colors, [[bad.red(), bad.green(), bad.blue()]]]).astype(np.uint32).T
    return np.append(0xFF000000 | red << 16 | green << 8 | blue, np.uint32(0))


def lookup_table() -> np.ndarray:
    """256 colours, (256,) uint32 as Qt packs them: 0xAARRGGBB."""
    return _table(theme.colors.bad)


@lru_cache(maxsize=8)
def _edges(low: float, high: float, linear: bool) -> np.ndarray:
    edges = np.linspace(low, high, TOP + 1)[1:]
    return np.append(edges if linear else 10**edges, np.inf)


@compiled("void(float64[::1], float64[::1], uint8[::1])")
def _search(values: np.ndarray, edges: np.ndarray, found: np.ndarray) -> None:
    """How many edges each value has come to; the last one is Inf, and NaN has come to all."""
    for place in range(values.size):
        low, high = 0, edges.size
        while low < high:
            middle = (low + high) // 2
            if values[place] < edges[middle]:
                high = middle
            else:
                low = middle + 1
        found[place] = low


def indices(values: np.ndarray, levels: tuple[float, float], *, linear: bool) -> np.ndarray:
    """Into the table, for values none of which is below 0. `levels`: of the two ends of the scale, as log10 unless `linear`. What is under
    the scale, as 0 is, has its first colour, and what is over it its last."""
    found = np.empty(values.shape, np.uint8)
    _search(values.astype(float).ravel(), _edges(*levels, linear), found.ravel())
    return found


class ColorBar(QWidget):
    """A strip of the colours with the values at its ends, and what is shown written beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedWidth(axes.RIGHT_WIDTH)
        self.setAccessibleName("Colour scale")
        self._levels: tuple[float, float] | None = None
        self._linear = False
        self._unit = ""

    def show_levels(self, levels: tuple[float, float] | None, what: str, unit: str, *, linear: bool = False) -> None:
        """The values at the two ends: log10 of them, or themselves where `linear`; None for no scale. `unit` is what they count."""
        if levels is not None and not levels[0] < levels[1]:
            levels = (levels[0], levels[0] + 1)
        if (levels, linear, unit) == (self._levels, self._linear, self._unit):
            return
        self._levels, self._linear, self._unit = levels, linear, unit
        low, high = (self._text(value) for value in levels) if levels else ("", "")
        self.setToolTip(f"{what}: {low} to {high}; a non-finite value is drawn in the colour below" if levels else "")
        self.setAccessibleDescription(f"{what} from {low} to {high}")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._levels is None:
            return
        painter = QPainter(self)
        font = theme.font(0.8)
        painter.setFont(font)
        line = painter.fontMetrics().height()
        strip = QRectF(8, 6 + line, 10, self.height() - 16 - 2 * line)
        gradient = QLinearGradient(strip.bottomLeft(), strip.topLeft())
        for position, color in zip(np.linspace(0, 1, 16), lookup_table()[np.linspace(0, TOP, 16).astype(int)], strict=True):
            gradient.setColorAt(float(position), QColor.fromRgb(int(color)))
        painter.fillRect(strip, gradient)
        painter.setPen(theme.color("dim"))
        painter.drawText(QRectF(6, 1, self.width() - 6, line), Qt.AlignmentFlag.AlignVCenter, self._unit)
        low, high = self._levels
        inner = [] if self._linear or strip.height() < 4 * line or high - low < 2 else [round((low + high) / 2)]
        for value in (low, *inner, high):
            y = strip.bottom() - (value - low) / (high - low) * strip.height()
            y = min(max(y - line / 2, strip.top() - 3), strip.bottom() - line + 3)
            painter.drawText(QRectF(24, y, self.width() - 24, line), Qt.AlignmentFlag.AlignVCenter, self._text(value))
        foot = QRectF(8, self.height() - line - 3, 10, line - 5)
        painter.fillRect(foot, theme.color("bad"))
        painter.drawText(QRectF(22, self.height() - line - 6, self.width() - 22, line), Qt.AlignmentFlag.AlignVCenter, "NaN Inf")
        painter.end()

    def _text(self, value: float) -> str:
        if self._linear:
            return f"{value:g}"
        return power(10, round(value)) if not -3 <= value <= 3 else f"{10.0 ** round(value):g}"
