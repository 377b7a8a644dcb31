"""The loss around the weights before a step, as colours in a plane: the weights as a dot, the update as an arrow, and
max_norm as a circle that the user drags."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QBrush, QFocusEvent, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from gradstudio.core.cliff import ACROSS, DOWN, LEFT, UP, Cliff, landing_at, length_of, max_norm_of
from gradstudio.core.text import number
from gradstudio.gui.drawing.heatmap_colors import TOP, lookup_table
from gradstudio.gui.theme import theme

FINE = 12  # pixels of the picture per cell
CONTOURS = 9  # lines of equal loss
HIGHEST = 30  # times the loss at the dot: anything above has the last colour
TURN = 1.1  # factor by which a key changes max_norm


class CliffPicture(QWidget):
    preview_changed = Signal()  # another max_norm, or another point, is read
    max_norm_moved = Signal(float)  # the user released the circle, or pressed Enter

    def __init__(self) -> None:
        super().__init__()
        self._cliff: Cliff | None = None
        self._image: QImage | None = None
        self.max_norm = 1.0  # in force
        self.clips = False  # whether it is in use
        self.preview: float | None = None  # max_norm while it is dragged
        self.pointer: tuple[float, float] | None = None  # point under the pointer, in units of the update
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Ignored)
        self.setMinimumHeight(48)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Loss around the weights before a step")
        self.setToolTip("Drag the circle of max_norm, or press Up or Down and then Enter")

    @property
    def cliff(self) -> Cliff | None:
        return self._cliff

    @property
    def levels(self) -> tuple[tuple[float, float], bool]:
        """The ends of the colour scale, and whether they are log10, which needs all losses to be above 0."""
        assert self._cliff is not None
        return _levels(self._cliff)

    def width_for(self, height: int) -> int:
        """Return the width that the cells need at a height."""
        line = self.fontMetrics().height()
        return round((height - line - 6) * ACROSS / UP) + line + 12

    def show_cliff(self, cliff: Cliff | None, max_norm: float, *, clips: bool) -> None:
        if (cliff, max_norm, clips) != (self._cliff, self.max_norm, self.clips):
            if cliff is not self._cliff:
                self._image = None
                if cliff is None or self._cliff is None or cliff.step != self._cliff.step:
                    self.preview = None
            self._cliff, self.max_norm, self.clips = cliff, max_norm, clips
            self.update()

    def redraw(self) -> None:
        self._image = None
        self.update()

    # ---- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        cliff = self._cliff
        if cliff is None:
            return
        if self._image is None:
            self._image = _draw(cliff)
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            painter.setFont(theme.font(0.8))
            plane = self._plane()
            painter.drawImage(plane, self._image)
            self._hatch(painter, cliff, plane)
            painter.setPen(QPen(theme.color("line"), 1))
            painter.drawRect(plane)
            self._write_axes(painter, cliff, plane)
            painter.setClipRect(plane)
            self._draw_circle(painter, cliff)
            self._draw_update(painter, cliff, plane)
            self._draw_landing(painter, cliff)

    def _plane(self) -> QRectF:
        """Return the area of the cells."""
        line = self.fontMetrics().height()
        room = QRectF(line + 6, 3, self.width() - line - 12, self.height() - line - 6)
        cell = min(room.width() / ACROSS, room.height() / UP)
        return QRectF(room.left(), room.top() + (room.height() - cell * UP) / 2, cell * ACROSS, cell * UP)

    @property
    def _scale(self) -> float:
        """Pixels per length of the update."""
        assert self._cliff is not None
        return self._plane().width() / ACROSS / self._cliff.cell

    def _at(self, x: float, y: float) -> QPointF:
        """Return the pixel of a point, limited to what Qt can draw."""
        plane = self._plane()
        cell = plane.width() / ACROSS
        dot = QPointF(plane.left() + (LEFT + 0.5) * cell, plane.bottom() - (DOWN + 0.5) * cell)
        far = 1e4
        away = max(abs(x), abs(y)) * self._scale
        shrunk = far / away if away > far else 1.0
        return dot + QPointF(x * self._scale * shrunk, -y * self._scale * shrunk)

    def _hatch(self, painter: QPainter, cliff: Cliff, plane: QRectF) -> None:
        """Hatch the cells whose loss is NaN or Inf."""
        cell = plane.width() / ACROSS
        painter.setPen(Qt.PenStyle.NoPen)
        for row, column in zip(*np.nonzero(cliff.known & ~np.isfinite(cliff.losses)), strict=True):
            box = QRectF(plane.left() + column * cell, plane.bottom() - (row + 1) * cell, cell, cell)
            painter.fillRect(box, theme.color("bad"))
            painter.fillRect(box, QBrush(theme.color("plot", 150), Qt.BrushStyle.BDiagPattern))

    def _draw_circle(self, painter: QPainter, cliff: Cliff) -> None:
        shown = self.max_norm if self.preview is None else self.preview
        length = length_of(cliff, shown)
        if length is None:
            return
        radius = min(length * self._scale, 2e4)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        style = Qt.PenStyle.SolidLine if self.clips or self.preview is not None else Qt.PenStyle.DashLine
        for color, width in ((theme.color("plot", 200), 4.0), (theme.color("text"), 1.8)):
            painter.setPen(QPen(color, width, style))
            painter.drawEllipse(self._at(0, 0), radius, radius)

    def _draw_landing(self, painter: QPainter, cliff: Cliff) -> None:
        """Draw where the step ends under max_norm."""
        landing = landing_at(cliff, self.max_norm if self.preview is None else self.preview)
        if landing is not None and (self.clips or self.preview is not None):
            painter.setPen(QPen(theme.color("text"), 1.5))
            painter.setBrush(theme.color("plot"))
            painter.drawEllipse(self._at(landing.x, landing.y), 5.5, 5.5)

    def _draw_update(self, painter: QPainter, cliff: Cliff, plane: QRectF) -> None:
        """Draw the weights as a dot, and the update as an arrow: without its tip if it leaves the plane."""
        dot, tip = self._at(0, 0), self._at(*cliff.update)
        way = tip - dot
        long = math.hypot(way.x(), way.y())
        for color, width in ((theme.color("plot", 200), 5.0), (theme.color("text"), 2.2)):
            painter.setPen(QPen(color, width))
            painter.drawLine(dot, tip)
        painter.setPen(QPen(theme.color("plot"), 1))
        painter.setBrush(theme.color("text"))
        if long > 4 and plane.contains(tip):
            ahead, aside = way * (11 / long), QPointF(-way.y(), way.x()) * (5 / long)
            painter.drawPolygon(QPolygonF([tip, tip - ahead + aside, tip - ahead - aside]))
        painter.drawEllipse(dot, 4.5, 4.5)

    def _write_axes(self, painter: QPainter, cliff: Cliff, plane: QRectF) -> None:
        line = painter.fontMetrics().height()
        painter.setPen(theme.color("dim"))
        tick = _tick(cliff.cell * 5)
        below = plane.bottom() + 1
        right = plane.left()
        for place in range(-2, 60):
            x = self._at(place * tick, 0).x()
            text = number(place * tick, 2)
            wide = painter.fontMetrics().horizontalAdvance(text) + 6
            if plane.left() - 4 <= x <= plane.right() and x - wide / 2 >= right:
                painter.drawLine(QPointF(x, below), QPointF(x, below + 3))
                painter.drawText(QRectF(x - wide / 2, below + 1, wide, line), Qt.AlignmentFlag.AlignCenter, text)
                right = x + wide / 2
        painter.save()
        painter.translate(plane.left() - 3, plane.center().y())
        painter.rotate(-90)
        room = QRectF(-plane.height() / 2, -line, plane.height(), line)
        painter.drawText(room, Qt.AlignmentFlag.AlignCenter, "across it")
        painter.restore()

    # ---- dragging

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._drag(event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._cliff is None:
            return
        away = event.position() - self._at(0, 0)
        inside = self._plane().contains(event.position())
        self.pointer = (away.x() / self._scale, -away.y() / self._scale) if inside else None
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._drag(event.position())
        else:
            self.preview_changed.emit()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._release()

    def leaveEvent(self, event: QEvent) -> None:
        self.pointer = None
        self.preview_changed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, cliff = event.key(), self._cliff
        turns: dict[int, float] = {Qt.Key.Key_Up: TURN, Qt.Key.Key_Down: 1 / TURN}
        if cliff is not None and key in turns and length_of(cliff, self.max_norm) is not None:
            self._look_at((self.max_norm if self.preview is None else self.preview) * turns[key])
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.preview is not None:
            self._release()
        elif key == Qt.Key.Key_Escape and self.preview is not None:
            self._look_at(None)
        else:
            super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if self.preview is not None:
            self._look_at(None)

    def _drag(self, place: QPointF) -> None:
        """Move the circle through a point."""
        if self._cliff is None:
            return
        away = place - self._at(0, 0)
        max_norm = max_norm_of(self._cliff, max(math.hypot(away.x(), away.y()), 2.0) / self._scale)
        if max_norm is not None:
            self._look_at(max_norm)

    def _look_at(self, max_norm: float | None) -> None:
        self.preview = None if max_norm is None else float(f"{max_norm:.2g}")
        self.update()
        self.preview_changed.emit()

    def _release(self) -> None:
        if (chosen := self.preview) is not None:
            self.preview = None
            self.max_norm_moved.emit(chosen)
            self.update()
            self.preview_changed.emit()


def cell_at(cliff: Cliff, x: float, y: float) -> tuple[int, int] | None:
    """Return the row and the column of the cell at a point; None outside."""
    row, column = round(y / cliff.cell) + DOWN, round(x / cliff.cell) + LEFT
    return (row, column) if 0 <= row < UP and 0 <= column < ACROSS else None


def _levels(cliff: Cliff) -> tuple[tuple[float, float], bool]:
    finite = cliff.losses[cliff.known & np.isfinite(cliff.losses)]
    if (finite > 0).all():
        low = math.log10(finite.min())
        return (low, max(min(math.log10(finite.max()), math.log10(HIGHEST * cliff.loss)), low + 0.01)), True
    low = float(finite.min())
    return (low, max(min(float(finite.max()), cliff.loss + HIGHEST * max(abs(cliff.loss), 1.0)), low + 1e-6)), False


def _draw(cliff: Cliff) -> QImage:
    """Return the colours of the plane with lines of equal loss. Between the cells of the measured grid they are
    interpolated; beyond it a cell equals the nearest one."""
    (low, high), logs = _levels(cliff)
    values = cliff.losses[np.ix_(cliff.rows, cliff.columns)]
    finite = np.isfinite(values)
    with np.errstate(all="ignore"):
        places = np.where(finite, ((np.log10(values) if logs else values) - low) / (high - low), 1.0)
    places = np.clip(places, 0, 1)
    columns = (np.arange(ACROSS * FINE) + 0.5) / FINE - 0.5
    rows = (np.arange(UP * FINE) + 0.5) / FINE - 0.5
    across = np.stack([np.interp(columns, cliff.columns, row) for row in places])
    fine = np.stack([np.interp(rows, cliff.rows, column) for column in across.T], 1)[::-1]
    colors = lookup_table()[(fine * TOP).astype(int)]
    bands = (fine * CONTOURS).astype(int)
    lines = np.zeros(fine.shape, bool)
    lines[:, 1:] |= bands[:, 1:] != bands[:, :-1]
    lines[1:] |= bands[1:] != bands[:-1]
    colors = np.where(lines, (colors & 0x00FEFEFE) >> 1 | 0x00404040 | 0xFF000000, colors).astype(np.uint32)
    colors = np.ascontiguousarray(colors)
    high_, wide = colors.shape
    return QImage(colors.data, wide, high_, 4 * wide, QImage.Format.Format_RGB32).copy()


def _tick(wanted: float) -> float:
    """Return 1, 2 or 5 times a power of ten, near a length."""
    power = 10 ** math.floor(math.log10(wanted))
    return next((times * power for times in (1, 2, 5) if times * power >= wanted), 10 * power)
