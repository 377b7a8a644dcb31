"""The edges of the picture of a network: their width and colour follow the log of a gradient."""

from __future__ import annotations

import math
from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QLinearGradient, QPainter, QPen, QPolygonF

from gradstudio.core.text import power
from gradstudio.gui.drawing.network_blocks import Flow, State
from gradstudio.gui.theme import theme

THINNEST, THICKEST = 1.5, 17.0  # px of a backward edge at the ends of the scale
LIGHT = ("#3b6fb6", "#5aa0a8", "#b79a3b", "#d9792b", "#b02a12")  # from the smallest gradient to the largest
DARK = ("#6f9fe8", "#63c2c6", "#e0c45c", "#ff9f57", "#ff6a4d")
SHADES = 255  # between the ends of the scale
STATES: dict[State, str] = {"zero": "exactly 0", "nonfinite": "NaN, Inf", "unknown": "not measured"}


def draw_edge(
    painter: QPainter, start: QPointF, end: QPointF, flow: Flow, levels: tuple[int, int], widest: float = 99
) -> None:
    """Draw an arrow from `end` back to `start`, with the width and colour of a gradient."""
    wide = min(edge_width(flow, levels) * min(theme.zoom, 1.3), widest)
    color = edge_color(flow, levels)
    long = end.x() - start.x()
    tip = min(max(0.7 * wide, 4.0), 0.6 * long)
    if flow.state in ("zero", "unknown"):
        dashes = Qt.PenStyle.DashLine if flow.state == "zero" else Qt.PenStyle.DotLine
        painter.setPen(QPen(color, 1.4, dashes))
        painter.drawLine(start, end)
        if flow.state == "zero":
            painter.setPen(QPen(color, 1.4))
            painter.setBrush(theme.color("plot"))
            painter.drawEllipse(QPointF((start.x() + end.x()) / 2, start.y()), 3.2, 3.2)
        return
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(color)
    left, right, y, high, head = start.x() + tip, end.x(), start.y(), wide / 2, max(wide * 0.95, 3.5)
    above = [QPointF(left, y - head), QPointF(left, y - high), QPointF(right, y - high)]
    below = [QPointF(right, y + high), QPointF(left, y + high), QPointF(left, y + head)]
    painter.drawPolygon(QPolygonF([start, *above, *below]))
    if flow.state == "nonfinite":  # hatched, not by its colour alone
        painter.setBrush(QBrush(theme.color("plot"), Qt.BrushStyle.BDiagPattern))
        painter.drawRect(QRectF(left, y - high, right - left, wide))


def edge_color(flow: Flow, levels: tuple[int, int]) -> QColor:
    """Return the colour of a gradient on the scale, or that of its state."""
    if flow.state == "nonfinite":
        return theme.color("bad")
    if flow.state in ("zero", "unknown"):
        return theme.color("text" if flow.state == "zero" else "dim")
    return _on_ramp(round(SHADES * _place(flow.norm, levels)), theme.dark)


@lru_cache(maxsize=2 * SHADES)
def _on_ramp(shade: int, dark: bool) -> QColor:
    colors = DARK if dark else LIGHT
    place = shade / SHADES * (len(colors) - 1)
    one, other = QColor(colors[int(place)]), QColor(colors[min(int(place) + 1, len(colors) - 1)])
    part = place - int(place)
    return QColor.fromRgbF(
        *(a + part * (b - a) for a, b in zip(one.getRgbF()[:3], other.getRgbF()[:3], strict=True))  # pyright: ignore[reportIndexIssue]
    )


def _place(norm: float, levels: tuple[int, int]) -> float:
    """Return the position of a norm on the scale, from 0 to 1."""
    low, high = levels
    place = (math.log10(norm) - low) / (high - low) if norm > 0 else 0.0
    return min(max(place, 0.0), 1.0)


def edge_width(flow: Flow, levels: tuple[int, int]) -> float:
    """Return the width of a gradient in px at normal text."""
    if flow.state == "nonfinite":
        return THICKEST
    return THINNEST + _place(flow.norm, levels) * (THICKEST - THINNEST) if flow.state == "measured" else THINNEST


def ramp(wedge: QRectF) -> QLinearGradient:
    """Return the colours of the scale, from left to right."""
    ramp = QLinearGradient(wedge.topLeft(), wedge.topRight())
    colors = DARK if theme.dark else LIGHT
    for place, color in enumerate(colors):
        ramp.setColorAt(place / (len(colors) - 1), QColor(color))
    return ramp


def draw_legend(painter: QPainter, width: int, height: int, levels: tuple[int, int]) -> None:
    """Draw the scale at the foot of the picture, and the look of an exact zero, a NaN and an unknown gradient."""
    line = painter.fontMetrics().height()
    y, x = height - line - 1.0, 12.0
    low, high = (power(10, level) for level in levels)
    middle = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft

    def write(text: str) -> None:
        nonlocal x
        wide = painter.fontMetrics().horizontalAdvance(text) + 2
        painter.setPen(theme.color("dim"))
        painter.drawText(QRectF(x, y, wide, line), middle, text)
        x += wide + 5

    write(low)
    wedge = QRectF(x, y + 2, 74 * theme.zoom, line - 4)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ramp(wedge))
    painter.drawPolygon(
        QPolygonF([QPointF(wedge.left(), wedge.center().y() - 1), wedge.topRight(), wedge.bottomRight(),
                   QPointF(wedge.left(), wedge.center().y() + 1)])
    )  # fmt: skip
    x = wedge.right() + 5
    write(f"{high}  gradient norm, log")
    for state, name in STATES.items():
        if x + 34 + painter.fontMetrics().horizontalAdvance(name) > width - 8:
            return
        x += 8
        sample = Flow(0.0, 0.0, 0.0, state)
        center = y + line / 2
        draw_edge(painter, QPointF(x, center), QPointF(x + 26, center), sample, levels, widest=8)
        x += 31
        write(name)
