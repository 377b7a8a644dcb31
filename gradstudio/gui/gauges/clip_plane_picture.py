"""A plane with a gradient before and after each kind of clipping: arrows, and the limits as a circle and two boxes."""

from __future__ import annotations

import math
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from gradstudio.core.clip_plane import Limits, Vector
from gradstudio.gui.theme import theme

HEIGHT = 210  # px at normal text
STEP = 0.05  # of the view, by which an arrow key moves the vector
LOOKS: dict[str, tuple[str, Qt.PenStyle, float]] = {  # colour, line, width of each arrow
    "before": ("text", Qt.PenStyle.SolidLine, 1.5),
    "value": ("warning", Qt.PenStyle.DashLine, 2.0),
    "agc": ("good", Qt.PenStyle.DotLine, 2.5),
    "norm": ("accent", Qt.PenStyle.SolidLine, 3.0),
}
NAMES = {"before": "gradient", "norm": "norm", "value": "value", "agc": "AGC"}


class Plane(NamedTuple):
    """The content of the picture: a vector before and after each kind of clipping, the limits if they are lines of this
    plane, and the visible length to each side."""

    vectors: dict[str, Vector]
    limits: Limits  # Inf if one is not a line of this plane
    reach: float


class ClipPlanePicture(QWidget):
    dragged = Signal(float, float)  # the user moved the gradient there

    def __init__(self) -> None:
        super().__init__()
        self._plane: Plane | None = None
        self.draggable = True
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Gradient in the plane, before and after clipping")
        theme.changed.connect(self._fit)
        self._fit()

    def show_plane(self, plane: Plane) -> None:
        self._plane = plane
        self.setCursor(Qt.CursorShape.CrossCursor if self.draggable else Qt.CursorShape.ArrowCursor)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        plane = self._plane
        if plane is None:
            return
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(theme.font(0.8))
            painter.setPen(QPen(theme.color("grid"), 1))
            middle = self._middle
            painter.drawLine(QPointF(0, middle.y()), QPointF(self.width(), middle.y()))
            painter.drawLine(QPointF(middle.x(), 0), QPointF(middle.x(), self.height()))
            self._draw_limits(painter, plane)
            for name, (role, line, width) in LOOKS.items():
                if name in plane.vectors:
                    self._draw_arrow(painter, plane.vectors[name], role, line, width)
            self._write(painter, plane)

    # ---- dragging

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._drag(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._drag(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        moves = {
            Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Up: (0, 1), Qt.Key.Key_Down: (0, -1),
        }  # fmt: skip
        move = moves.get(Qt.Key(event.key()))
        if move is None or self._plane is None or not self.draggable:
            super().keyPressEvent(event)
            return
        step = STEP * self._plane.reach
        x, y = self._plane.vectors["before"]
        self._move(x + move[0] * step, y + move[1] * step)

    def _drag(self, event: QMouseEvent) -> None:
        if self.draggable and self._plane is not None:
            away = event.position() - self._middle
            self._move(away.x() / self._scale, -away.y() / self._scale)

    def _move(self, x: float, y: float) -> None:
        assert self._plane is not None
        wide, high = self._middle.x() / self._scale, self._middle.y() / self._scale
        self.dragged.emit(min(max(x, -wide), wide), min(max(y, -high), high))

    # ---- inside

    @property
    def _middle(self) -> QPointF:
        return QPointF(self.width() / 2, self.height() / 2)

    @property
    def _scale(self) -> float:
        """Pixels per unit, the same in both directions."""
        assert self._plane is not None
        return min(self.width(), self.height()) / 2 / self._plane.reach

    def _at(self, vector: Vector) -> QPointF:
        return self._middle + QPointF(vector[0] * self._scale, -vector[1] * self._scale)

    def _draw_limits(self, painter: QPainter, plane: Plane) -> None:
        limits = plane.limits
        for kind, (across, up) in (
            ("norm", (limits.max_norm, limits.max_norm)),
            ("value", (limits.clip_value, limits.clip_value)),
            ("agc", limits.units),
        ):
            role, line, _ = LOOKS[kind]
            if max(across, up) * self._scale > 20_000:
                continue  # far outside of the picture
            painter.setPen(QPen(theme.color(role, 130), 1, line))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            box = QRectF(self._at((-across, up)), self._at((across, -up)))
            painter.drawEllipse(box) if kind == "norm" else painter.drawRect(box)

    def _draw_arrow(self, painter: QPainter, vector: Vector, role: str, line: Qt.PenStyle, width: float) -> None:
        tip = self._at(vector)
        away = tip - self._middle
        long = math.hypot(away.x(), away.y())
        painter.setPen(QPen(theme.color(role), width, line))
        painter.drawLine(self._middle, tip)
        if long < 4:
            painter.setBrush(theme.color(role))
            painter.drawEllipse(tip, 2, 2)
            return
        ahead, aside = away * (9 / long), QPointF(-away.y(), away.x()) * (4 / long)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color(role))
        painter.drawPolygon(QPolygonF([tip, tip - ahead + aside, tip - ahead - aside]))

    def _write(self, painter: QPainter, plane: Plane) -> None:
        """Draw the names of the arrows with their lines at the top left."""
        high = painter.fontMetrics().height()
        down = 2.0
        for name in ("before", "norm", "value", "agc"):
            if name in plane.vectors:
                role, line, width = LOOKS[name]
                painter.setPen(QPen(theme.color(role), width, line))
                painter.drawLine(QPointF(2, down + high / 2), QPointF(22, down + high / 2))
                painter.setPen(theme.color("text"))
                painter.drawText(QRectF(27, down, self.width(), high), NAMES[name])
                down += high

    def _fit(self) -> None:
        self.setFixedHeight(round(HEIGHT * theme.zoom))
        self.update()


def reach_of(vectors: dict[str, Vector]) -> float:
    """Return a length that shows all of these vectors."""
    return 1.25 * max((abs(each) for vector in vectors.values() for each in vector), default=0.0) or 1.0
