"""The small pictures of the gauges. They change seldom: each is drawn once for a new sample, and Qt shows it by
itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen

from gradstudio.core.gauge_samples import FP16_NORMAL, FP16_SUBNORMAL, LOWEST, Exponents
from gradstudio.core.text import number, power
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.picture import Picture
from gradstudio.session.words.gauge_readings import factor

ROOM = 3  # px around the content


class ExponentBars(Picture):
    """A histogram of the gradient's entries by powers of two: filled without, and as an outline with a loss scale. The
    range of fp16 is shaded, its subnormal numbers fainter."""

    LEAST, MOST = -34, 18  # powers of two that are always visible

    def __init__(self) -> None:
        self._shown: Exponents | None = None
        super().__init__("Histogram of the gradient's exponents", 128)

    def show_of(self, exponents: Exponents) -> None:
        if exponents is not self._shown:
            self._shown = exponents
            self.draw()

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        if self._shown is None:
            return
        counts, scale = self._shown.counts, scale_beside(self._shown)
        moved = round(math.log2(scale)) if scale > 0 else 0
        there = np.flatnonzero(counts) + LOWEST
        low = min([self.LEAST, *(there[:1] - 1 + min(moved, 0))])
        high = max([self.MOST, *(there[-1:] + 2 + max(moved, 0))])
        line = painter.fontMetrics().height()
        top, foot = line + 4, height - line - 4
        across = width / (high - low)

        def at(exponent: float) -> float:
            return float((exponent - low) * across)

        for first, last, alpha in ((FP16_SUBNORMAL, FP16_NORMAL, 18), (FP16_NORMAL, 16, 40)):
            painter.fillRect(QRectF(at(first), top, at(last) - at(first), foot - top), theme.color("good", alpha))
        tallest = max(int(counts.max()), 1)
        for place in np.flatnonzero(counts).tolist():
            left, size = at(place + LOWEST), max((foot - top) * counts[place] / tallest, 1.0)
            painter.fillRect(
                QRectF(left, foot - size, max(at(place + LOWEST + 1) - left - 0.5, 1), size), theme.color("accent", 190)
            )
        if moved and len(there):
            painter.setPen(QPen(theme.color("text"), 1))
            painter.drawPath(_outline(counts, at, moved, tallest, top, foot))
        painter.setPen(theme.color("dim"))
        painter.drawLine(QPointF(0, foot), QPointF(width, foot))
        self._ticks(painter, at, foot, width, line)
        self._legend(painter, width, line, factor(scale) if moved else "")

    def _ticks(self, painter: QPainter, at: Callable[[float], float], foot: float, width: float, line: int) -> None:
        beyond = [FP16_SUBNORMAL - 32 * count for count in range(1, 4) if at(FP16_SUBNORMAL - 32 * count) >= 0]
        for exponent in (*beyond, FP16_SUBNORMAL, FP16_NORMAL, 0, 16):
            painter.drawLine(QPointF(at(exponent), foot), QPointF(at(exponent), foot + 3))
            text = power(2, exponent) if exponent else "1"
            wide = painter.fontMetrics().horizontalAdvance(text)
            left = min(max(at(exponent) - wide / 2, 0), width - wide)
            painter.drawText(QRectF(left, foot + 3, wide + 2, line), Qt.AlignmentFlag.AlignLeft, text)

    def _legend(self, painter: QPainter, width: float, line: int, scaled: str) -> None:
        x, side = 0.0, line * 0.55
        entries = [("gradient", True), *([(f"gradient × {scaled}", False)] if scaled else [])]
        for text, filled in entries:
            box = QRectF(x + 0.5, (line - side) / 2 + 0.5, side, side)
            if filled:
                painter.fillRect(box, theme.color("accent", 190))
            else:
                painter.setPen(QPen(theme.color("text"), 1))
                painter.drawRect(box)
            painter.setPen(theme.color("dim"))
            painter.drawText(QRectF(x + side + 5, 0, width, line), Qt.AlignmentFlag.AlignVCenter, text)
            x += side + 5 + painter.fontMetrics().horizontalAdvance(text) + 12
        painter.fillRect(QRectF(x, (line - side) / 2, side, side), theme.color("good", 58))
        painter.drawText(QRectF(x + side + 5, 0, width, line), Qt.AlignmentFlag.AlignVCenter, "range of fp16")


def scale_beside(exponents: Exponents) -> float:
    """Return the factor of the outline: the loss scale in force, or the best one if there is none."""
    return exponents.best_scale if exponents.scale == 1 else exponents.scale


def _outline(
    counts: np.ndarray, at: Callable[[float], float], moved: int, tallest: int, top: float, foot: float
) -> QPainterPath:
    """Return the outline of the bars, shifted by `moved` powers of two."""
    there = np.flatnonzero(counts) + LOWEST + moved
    path = QPainterPath(QPointF(at(there[0]), foot))
    for exponent in range(there[0], there[-1] + 1):
        level = foot - (foot - top) * float(counts[exponent - moved - LOWEST]) / tallest
        path.lineTo(at(exponent), level)
        path.lineTo(at(exponent + 1), level)
    path.lineTo(at(there[-1] + 1), foot)
    return path


class Sparkline(Picture):
    """A value over the steps with a named dashed limit, on a log scale if all values are above 0. A non-finite value is
    a gap with a cross at the top."""

    def __init__(self, name: str) -> None:
        self._steps, self._values, self._limits = np.empty(0), np.empty(0), np.empty(0)
        self._limit_name = ""
        super().__init__(name, 74)

    def show_of(self, steps: Sequence[int], values: Sequence[float], limits: Sequence[float], limit: str) -> None:
        """Show these samples, which have the same length; `limit` is the name of the limits."""
        self._steps, self._values, self._limits = (np.array(each, float) for each in (steps, values, limits))
        self._limit_name = limit
        self.draw()

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        if not len(self._steps):
            return
        line = painter.fontMetrics().height()
        top, foot = ROOM + (0 if np.isfinite(self._values).all() else 8), height - line - 4
        values, limits = self._to_pixels(width, top, foot)
        painter.setPen(QPen(theme.color("line"), 1))
        painter.drawLine(QPointF(0, foot), QPointF(width, foot))
        self._draw_limits(painter, limits, width, line)
        painter.setPen(QPen(theme.color("bad"), 1))
        for x, y in values.tolist():
            if not math.isfinite(y):
                painter.drawLine(QPointF(x - 2, ROOM), QPointF(x + 2, ROOM + 4))
                painter.drawLine(QPointF(x - 2, ROOM + 4), QPointF(x + 2, ROOM))
        painter.setPen(QPen(theme.color("accent"), 1))
        _lines(painter, values)
        if math.isfinite(values[-1, 1]):
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setBrush(theme.color("accent"))
            painter.drawEllipse(QPointF(*values[-1].tolist()), 2.5, 2.5)
        painter.setPen(theme.color("dim"))
        below = QRectF(0, foot + 2, width, line)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, f"step {self._steps[0]:,.0f}")
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, f"{self._steps[-1]:,.0f}")

    def _draw_limits(self, painter: QPainter, limits: np.ndarray, width: float, line: int) -> None:
        painter.setPen(QPen(theme.color("bad"), 1, Qt.PenStyle.DashLine))
        _lines(painter, np.vstack([limits, [[width, limits[-1, 1]]]]))
        there = limits[np.isfinite(limits[:, 1]), 1]
        if len(there):
            level = float(there[0])
            above = level - line if level >= line else level + 1
            painter.setPen(theme.color("bad"))
            painter.drawText(QRectF(ROOM, above, width, line), Qt.AlignmentFlag.AlignLeft, self._limit_name)

    def _to_pixels(self, width: float, top: float, foot: float) -> tuple[np.ndarray, np.ndarray]:
        """Return values and limits in pixels, each (samples, 2), with NaN if there is nothing finite."""
        both = np.stack([self._values, self._limits])
        finite = both[np.isfinite(both)]
        logarithmic = bool(len(finite) and (finite > 0).all())
        ends = f"{number(float(finite.min()))} to {number(float(finite.max()))}" if len(finite) else "nothing finite"
        self.setToolTip(f"{self.accessibleName()}: {ends}{', on a log scale' if logarithmic else ''}")
        with np.errstate(invalid="ignore", divide="ignore"):
            levels = np.log10(both) if logarithmic else both
        levels = np.where(np.isfinite(levels), levels, np.nan)
        low, high = (np.nanmin(levels), np.nanmax(levels)) if len(finite) else (0.0, 1.0)
        margin = max(0.08 * (high - low), 0.05 if logarithmic else 0.05 * max(abs(low), abs(high), 1e-30))
        first, last = self._steps[0], max(self._steps[-1], self._steps[0] + 1)
        across = ROOM + (self._steps - first) / (last - first) * (width - 5 - ROOM)
        down = foot - (levels - low + margin) / (high - low + 2 * margin) * (foot - top)
        return np.stack([across, down[0]], 1), np.stack([across, down[1]], 1)


def _lines(painter: QPainter, points: np.ndarray) -> None:
    """Draw a line through these points, (points, 2), with a gap where one is not finite."""
    stretch: list[QPointF] = []
    for x, y in (*points.tolist(), (0.0, math.nan)):
        if math.isfinite(y):
            stretch.append(QPointF(x, y))
            continue
        if len(stretch) > 1:
            painter.drawPolyline(stretch)
        stretch = []
