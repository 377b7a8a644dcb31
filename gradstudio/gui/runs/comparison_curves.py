"""The curves of compared runs, as a picture above their table: the loss and the gradient norm, over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QPolygonF

from gradstudio.core.text import number
from gradstudio.gui.drawing import usual_range
from gradstudio.gui.drawing.overlay import color, pen
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.picture import Picture
from gradstudio.session.record.run import Run

HEIGHT = 190  # px at normal text
COLUMNS = {"loss": "Loss (log)", "grad_norm": "Gradient norm (log)"}
POINTS = 500  # of a curve; of the steps between two of them the maximum is drawn
SPIKES = usual_range.SpikeCut(0.5, 2.5)  # of each run, which may leave the picture
CROSS = 4.0  # px from the middle of the mark of a NaN or Inf


class ComparisonCurves(Picture):
    """`places`: the slot of each run over the plots, which determines its colour and dash."""

    def __init__(self, runs: Sequence[Run], places: Sequence[int]) -> None:
        self._runs, self._places = list(runs), list(places)
        super().__init__("Loss and gradient norm of the runs", HEIGHT)
        self.setAccessibleDescription(f"Curves of {', '.join(run.title for run in runs)}; × marks a NaN or Inf")

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        each = width / len(COLUMNS)
        for place, (column, title) in enumerate(COLUMNS.items()):
            self._draw(painter, column, title, QRectF(place * each, 0, each, height))

    def _draw(self, painter: QPainter, column: str, title: str, room: QRectF) -> None:
        line = float(painter.fontMetrics().height())
        area = room.adjusted(52, line + 6, -14, -line - 6)
        rows = [run.history.column(column) for run in self._runs]
        seen = np.concatenate([values[np.isfinite(values) & (values > 0)] for values in rows] or [np.empty(0)])
        painter.setPen(theme.color("text"))
        painter.drawText(QPointF(area.left(), line), title)
        if not seen.size or area.width() < 1:
            return
        low = math.log10(float(seen.min()))
        high = max(usual_range.top(_decades(values), low, SPIKES) for values in rows)
        low, high = (low - 0.5, high + 0.5) if high - low < 1e-9 else (low, high)
        last = max(max((len(values) for values in rows), default=1) - 1, 1)
        painter.setPen(theme.color("line"))
        painter.drawRect(area)
        painter.setPen(theme.color("dim"))
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for share, value in ((0.0, 10**high), (0.5, 10 ** ((low + high) / 2)), (1.0, 10**low)):
            beside = QRectF(room.left(), area.top() + share * area.height() - line / 2, 46, line)
            painter.drawText(beside, right, number(value, 2))
        below = QRectF(area.left(), area.bottom() + 2, area.width(), line)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, "0")
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, f"step {last:,}")
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.save()
        painter.setClipRect(area.adjusted(-CROSS, 0, CROSS, 0))  # a spike leaves it
        for values, place in zip(rows, self._places, strict=True):
            _draw_curve(painter, values, place, area, (low, high), last)
        painter.restore()


def _decades(values: np.ndarray) -> np.ndarray:
    return np.log10(values[np.isfinite(values) & (values > 0)])


def _draw_curve(
    painter: QPainter, values: np.ndarray, place: int, area: QRectF, ends: tuple[float, float], last: int
) -> None:  # fmt: skip
    """Draw the positive values, the maximum of some neighbours each, with gaps if all neighbours are NaN or Inf, and a
    mark where each stretch of neighbours with a NaN or Inf begins."""
    low, high = ends
    every = max(len(values) // POINTS, 1)
    pieces, crosses, broke = [QPolygonF()], list[float](), False
    for start in range(0, len(values), every):
        part = values[start : start + every]
        finite = np.isfinite(part)
        mask, x = part[finite & (part > 0)], area.left() + start / last * area.width()
        if mask.size:
            share = (math.log10(float(mask.max())) - low) / (high - low)
            pieces[-1].append(QPointF(x, area.bottom() - share * area.height()))
        elif not finite.all():
            pieces.append(QPolygonF())
        if not finite.all() and not broke:
            crosses.append(x)
        broke = not finite.all()
    painter.setPen(pen(place, 1.4))
    for piece in pieces:
        painter.drawPolyline(piece)
    painter.setPen(QPen(color(place), 2.0))
    for x in crosses:
        middle = QPointF(x, area.top() + CROSS + 1)
        painter.drawLine(middle - QPointF(CROSS, CROSS), middle + QPointF(CROSS, CROSS))
        painter.drawLine(middle - QPointF(CROSS, -CROSS), middle + QPointF(CROSS, -CROSS))
