"""The bar beside the heatmap that shows which value has which colour."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gradstudio.core.text import number, power
from gradstudio.gui.drawing import axes
from gradstudio.gui.drawing.heatmap_colors import TOP, lookup_table
from gradstudio.gui.theme import theme


class ColorBar(QWidget):
    """A strip of the colours with the values at its ends and their unit."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedWidth(axes.RIGHT_WIDTH)
        self.setAccessibleName("Colour scale")
        self._levels: tuple[float, float] | None = None
        self._linear = False
        self._unit = ""
        self._zero = False  # whether the colour of 0 is explained

    def show_levels(
        self, levels: tuple[float, float] | None, what: str, unit: str, *, linear: bool = False, zero: bool = False
    ) -> None:
        """Show the values at the two ends, given as log10 unless `linear`; None for no scale. `what` is shown, in
        `unit`. `zero`: there are cells of exactly 0."""
        if levels is not None and not levels[0] < levels[1]:
            levels = (levels[0], levels[0] + 1)
        if (levels, linear, unit, zero) == (self._levels, self._linear, self._unit, self._zero):
            return
        self._levels, self._linear, self._unit, self._zero = levels, linear, unit, zero
        low, high = (self._text(value) for value in levels) if levels else ("", "")
        self.setToolTip(f"{what}: {low} to {high}; exactly 0, NaN and Inf have the colours below" if levels else "")
        self.setAccessibleDescription(f"{what} from {low} to {high}")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._levels is None:
            return
        with QPainter(self) as painter:
            painter.setFont(theme.font(0.8))
            line = painter.fontMetrics().height()
            below = 2 if self._zero else 1  # entries under the strip
            strip = QRectF(8, 6 + line, 10, self.height() - 16 - (1 + below) * line)
            painter.fillRect(strip, _gradient(strip))
            painter.setPen(theme.color("dim"))
            painter.drawText(QRectF(6, 1, self.width() - 6, line), Qt.AlignmentFlag.AlignVCenter, self._unit)
            self._write_values(painter, self._levels, strip, line)
            for row, (text, role) in enumerate((("NaN Inf", "bad"), ("0", "disabled"))[:below], 1):
                y = self.height() - row * line
                painter.fillRect(QRectF(8, y - 3, 10, line - 5), theme.color(role))
                beside = QRectF(22, y - 6, self.width() - 22, line)
                painter.drawText(beside, Qt.AlignmentFlag.AlignVCenter, text)

    def _write_values(self, painter: QPainter, levels: tuple[float, float], strip: QRectF, line: int) -> None:
        low, high = levels
        inner = [] if self._linear or strip.height() < 4 * line or high - low < 2 else [round((low + high) / 2)]
        for value in (low, *inner, high):
            y = strip.bottom() - (value - low) / (high - low) * strip.height()
            y = min(max(y - line / 2, strip.top() - 3), strip.bottom() - line + 3)
            painter.drawText(QRectF(24, y, self.width() - 24, line), Qt.AlignmentFlag.AlignVCenter, self._text(value))

    def _text(self, value: float) -> str:
        if self._linear:
            return number(value)
        if not -3 <= value <= 3 and value == round(value):
            return power(10, round(value))
        return number(10.0**value)


def _gradient(strip: QRectF) -> QLinearGradient:
    gradient = QLinearGradient(strip.bottomLeft(), strip.topLeft())
    colors = lookup_table()[np.linspace(0, TOP, 16).astype(int)]
    for position, color in zip(np.linspace(0, 1, 16), colors, strict=True):
        gradient.setColorAt(float(position), QColor.fromRgb(int(color)))
    return gradient
