"""Small pictures that change seldom: each is drawn once, when it has something new to show, and Qt puts it on the screen by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen, QPixmap, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from gradstudio.core.probes import FP16_NORMAL, FP16_SUBNORMAL, LOWEST, Exponents
from gradstudio.core.text import number, power
from gradstudio.gui.theme import theme
from gradstudio.session.probe_words import factor

ROOM = 3  # px around what is drawn


class Picture(QLabel):
    """As wide as it gets, and so high (px at normal text)."""

    def __init__(self, name: str, height: int) -> None:
        super().__init__()
        self._height = height
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(name)
        theme.changed.connect(self._fit)
        self._fit()

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        raise AssertionError("each picture says how it is drawn")

    def draw(self) -> None:
        """Draw it anew."""
        scale = self.devicePixelRatioF()
        drawn = QPixmap(QSize(max(self.width(), 1), max(self.height(), 1)) * scale)
        drawn.setDevicePixelRatio(scale)
        drawn.fill(Qt.GlobalColor.transparent)
        painter = QPainter(drawn)
        painter.setFont(theme.font(0.8))
        self.paint(painter, self.width(), self.height())
        painter.end()
        self.setPixmap(drawn)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.draw()

    def _fit(self) -> None:
        self.setFixedHeight(round(self._height * theme.zoom))
        self.draw()


class ExponentBars(Picture):
    """How many entries have which power of two: as they are, filled, and times a loss scale, as an outline. What fp16 can hold is shaded, its
    subnormal numbers fainter."""

    LEAST, MOST = -34, 18  # powers of two that are always shown

    def __init__(self) -> None:
        self._shown: Exponents | None = None
        super().__init__("Histogram of the gradient's exponents", 128)

    def show_of(self, found: Exponents) -> None:
        if found is not self._shown:
            self._shown = found
            self.draw()

    @property
    def scale(self) -> float:
        """What the outline is scaled by: the loss scale in force, or the best one where there is none."""
        return self._shown.best_scale if self._shown.scale == 1 else self._shown.scale

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        if self._shown is None:
            return
        counts, moved = self._shown.counts, round(math.log2(self.scale)) if self.scale > 0 else 0
        there = np.flatnonzero(counts) + LOWEST
        low = min(self.LEAST, *(there[:1] - 1), *(there[:1] + moved - 1))
        high = max(self.MOST, *(there[-1:] + 2), *(there[-1:] + moved + 2))
        line = painter.fontMetrics().height()
        top, foot = line + 4, height - line - 4
        across = width / (high - low)

        def at(exponent: float) -> float:
            return float((exponent - low) * across)

        for first, last, alpha in ((FP16_SUBNORMAL, FP16_NORMAL, 18), (FP16_NORMAL, 16, 40)):
            painter.fillRect(QRectF(at(first), top, at(last) - at(first), foot - top), theme.color("good", alpha))
        tallest = max(int(counts.max()), 1)
        self._bars(painter, at, tallest, top, foot)
        if moved:
            painter.setPen(QPen(theme.color("text"), 1))
            painter.drawPath(self._outline(at, moved, tallest, top, foot))
        painter.setPen(theme.color("dim"))
        painter.drawLine(QPointF(0, foot), QPointF(width, foot))
        self._ticks(painter, at, foot, width, line)
        self._legend(painter, width, line, bool(moved))

    def _bars(self, painter: QPainter, at, tallest: int, top: float, foot: float) -> None:
        counts = self._shown.counts
        for place in np.flatnonzero(counts).tolist():
            left, high = at(place + LOWEST), max((foot - top) * counts[place] / tallest, 1.0)
            painter.fillRect(QRectF(left, foot - high, max(at(place + LOWEST + 1) - left - 0.5, 1), high), theme.color("accent", 190))

    def _outline(self, at, moved: int, tallest: int, top: float, foot: float) -> QPainterPath:
        counts = self._shown.counts
        there = np.flatnonzero(counts)
        path = QPainterPath(QPointF(at(there[0] + LOWEST + moved), foot)) if len(there) else QPainterPath()
        for place in range(there[0], there[-1] + 1) if len(there) else ():
            level = foot - (foot - top) * float(counts[place]) / tallest
            path.lineTo(at(place + LOWEST + moved), level)
            path.lineTo(at(place + LOWEST + moved + 1), level)
        if len(there):
            path.lineTo(at(there[-1] + LOWEST + moved + 1), foot)
        return path

    def _ticks(self, painter: QPainter, at, foot: float, width: float, line: int) -> None:
        beyond = [FP16_SUBNORMAL - 32 * count for count in range(1, 4) if at(FP16_SUBNORMAL - 32 * count) >= 0]
        for exponent in (*beyond, FP16_SUBNORMAL, FP16_NORMAL, 0, 16):
            painter.drawLine(QPointF(at(exponent), foot), QPointF(at(exponent), foot + 3))
            text = power(2, exponent) if exponent else "1"
            wide = painter.fontMetrics().horizontalAdvance(text)
            left = min(max(at(exponent) - wide / 2, 0), width - wide)
            painter.drawText(QRectF(left, foot + 3, wide + 2, line), Qt.AlignmentFlag.AlignLeft, text)

    def _legend(self, painter: QPainter, width: float, line: int, scaled: bool) -> None:
        x, side = 0.0, line * 0.55
        entries = [("as it is", True), *([(f"times {factor(self.scale)}", False)] if scaled else [])]
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
        painter.drawText(QRectF(x + side + 5, 0, width, line), Qt.AlignmentFlag.AlignVCenter, "fp16 holds")


class Sparkline(Picture):
    """A value over the steps, and a limit, dashed, that has a name. On a logarithmic scale where all are above 0."""

    def __init__(self, name: str, limit: str = "") -> None:
        self._steps, self._values, self._limits = np.empty(0), np.empty(0), np.empty(0)
        self._limit_name = limit
        super().__init__(name, 74)

    def show_of(self, steps: Sequence[int], values: Sequence[float], limits: Sequence[float], limit: str) -> None:
        self._steps, self._values, self._limits = (np.array(each, float) for each in (steps, values, limits))
        self._limit_name = limit
        self.draw()

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        both = np.concatenate([self._values, self._limits])
        finite = both[np.isfinite(both)]
        if not len(finite):
            return
        line = painter.fontMetrics().height()
        logarithmic = bool((finite > 0).all())
        shown = np.log10(finite) if logarithmic else finite
        low, high = float(shown.min()), float(shown.max())
        margin = max(0.08 * (high - low), 0.05 if logarithmic else 0.05 * max(abs(low), abs(high), 1e-30))
        low, high = low - margin, high + margin
        first, last = float(self._steps[0]), max(float(self._steps[-1]), float(self._steps[0]) + 1)
        top, foot, right = ROOM + (0 if np.isfinite(self._values).all() else 8), height - line - 4, width - 5

        def points(values: np.ndarray) -> list[QPointF | None]:
            with np.errstate(invalid="ignore", divide="ignore"):
                levels = np.log10(values) if logarithmic else values
            across = ROOM + (self._steps - first) / (last - first) * (right - ROOM)
            down = foot - (levels - low) / (high - low) * (foot - top)
            return [QPointF(x, y) if math.isfinite(y) else None for x, y in zip(across.tolist(), down.tolist(), strict=True)]

        painter.setPen(QPen(theme.color("line"), 1))
        painter.drawLine(QPointF(0, foot), QPointF(width, foot))
        limits = points(self._limits)
        painter.setPen(QPen(theme.color("bad"), 1, Qt.PenStyle.DashLine))
        if limits[-1] is not None:
            limits.append(QPointF(width, limits[-1].y()))
        self._line(painter, limits)
        painter.setPen(QPen(theme.color("accent"), 1))
        values = points(self._values)
        self._line(painter, values)
        self._crosses(painter, values, ROOM)
        if values[-1] is not None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(theme.color("accent"), 1))
            painter.setBrush(theme.color("accent"))
            painter.drawEllipse(values[-1], 2.5, 2.5)
        level = next((point.y() for point in limits if point is not None), None)
        if level is not None and self._limit_name:
            painter.setPen(theme.color("bad"))
            above = level - line if level - line >= 0 else level + 1
            painter.drawText(QRectF(ROOM, above, width, line), Qt.AlignmentFlag.AlignLeft, self._limit_name)
        painter.setPen(theme.color("dim"))
        painter.drawText(QRectF(0, foot + 2, width, line), Qt.AlignmentFlag.AlignLeft, f"step {self._steps[0]:,.0f}")
        painter.drawText(QRectF(0, foot + 2, width, line), Qt.AlignmentFlag.AlignRight, f"{self._steps[-1]:,.0f}")
        ends = f"{number(10**low if logarithmic else low, 2)} to {number(10**high if logarithmic else high, 2)}"
        self.setToolTip(f"{self.accessibleName()}, from {ends}{', on a logarithmic scale' if logarithmic else ''}")

    def _crosses(self, painter: QPainter, values: list[QPointF | None], top: float) -> None:
        """Where the value is no number that can be drawn, at the top."""
        painter.setPen(QPen(theme.color("bad"), 1))
        first, last = self._steps[0], max(self._steps[-1], self._steps[0] + 1)
        for step, point in zip(self._steps.tolist(), values, strict=True):
            if point is None:
                x, y = ROOM + (step - first) / (last - first) * (self.width() - 5 - ROOM), top + 2.0
                painter.drawLine(QPointF(x - 2, y - 2), QPointF(x + 2, y + 2))
                painter.drawLine(QPointF(x - 2, y + 2), QPointF(x + 2, y - 2))

    @staticmethod
    def _line(painter: QPainter, points: list[QPointF | None]) -> None:
        """Through all there are; where one is missing, there is a gap."""
        stretch: list[QPointF] = []
        for point in (*points, None):
            if point is not None:
                stretch.append(point)
                continue
            if len(stretch) > 1:
                painter.drawPolyline(stretch)
            stretch = []
