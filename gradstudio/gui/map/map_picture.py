"""The picture of a map: its cells, the boundary, the axes and the legend; over them the cell under the pointer, and a
cross at the current knobs. A click opens a cell, and the cross can be dragged."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QEvent, QLineF, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.picture import Picture
from gradstudio.session.map.drawing import UNKNOWN, Drawing, name_with_unit, ticks
from gradstudio.session.map.grid import UNTRAINED
from gradstudio.session.map.map_plan import Spot

Place = tuple[int, float, float]  # a panel, and column and row in fractions of cells

TALL, LOW = 290, 210  # px of a panel, alone and among others, at least
KEY_COLUMNS = 2
SWATCH = 10.0  # px
ARM = 10.0  # px of the cross, from its middle
DASH, GAP = 3.0, 2.5  # px of its arms, if it is dashed
NEAR = 11.0  # px from its middle within which it can be grabbed
STEPS = {Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Up: (0, 1), Qt.Key.Key_Down: (0, -1)}


class MapPicture(Picture):
    pointed = Signal(object)  # the Spot under the pointer; None for none
    chosen = Signal(object)  # the Spot to open as a run
    moved = Signal(object)  # the Spot to which the cross was dragged

    def __init__(self) -> None:
        self._drawing: Drawing | None = None
        self._images: list[QImage] = []
        self._areas: list[QRectF] = []  # of the cells of each panel
        self._cross: Place | None = None
        self._dashed = False
        self._spot: Spot | None = None  # under the pointer
        self._pressed: Spot | None = None
        self._dragging = False
        self._room = TALL
        super().__init__("Stability map", TALL)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)

    def show_map(self, drawing: Drawing) -> None:
        """Show a map."""
        if self._drawing is not None and drawing.plan is not self._drawing.plan:
            self._cross = None
            self._point(None)
        self._drawing = drawing
        self._images = [_image(drawing, panel) for panel in range(len(drawing.colours))]
        self._fit_room()

    def give_room(self, height: int) -> None:
        """Use this many px at normal text for the panels, if that is more than they need."""
        if height != self._room:
            self._room = height
            self._fit_room()

    def _fit_room(self) -> None:
        count = max(len(self._images), 1)
        least = (TALL if count == 1 else LOW) * count
        self.fit_height(max(least, self._room) + 18 * self._key_lines())

    def show_cross(self, place: Place | None, *, dashed: bool) -> None:
        """Show the position of the current knobs. `dashed`: other knobs differ from those of the map."""
        if (place, dashed) != (self._cross, self._dashed):
            self._cross, self._dashed = place, dashed
            self.update()

    def area(self, panel: int) -> QRectF:
        """Return the area of the cells of a panel, in pixels."""
        return self._areas[panel]

    # ---- the user's actions

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self._at(event.position(), clamped=self._dragging))
        near = self._dragging or self._near_cross(event.position())
        self.setCursor(Qt.CursorShape.SizeAllCursor if near else Qt.CursorShape.ArrowCursor)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._dragging = self._near_cross(event.position())
            self._pressed = None if self._dragging else self._at(event.position())
            self.update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        spot = self._at(event.position(), clamped=self._dragging)
        dragged, pressed = self._dragging, self._pressed
        self._dragging, self._pressed = False, None
        self.update()
        if event.button() != Qt.MouseButton.LeftButton or spot is None:
            return
        if dragged:
            if spot != self._cell_of_cross():
                self.moved.emit(spot)
        elif spot == pressed:
            self.chosen.emit(spot)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        if not self._dragging:
            self._point(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self._drawing is not None and event.key() in STEPS:
            right, up = STEPS[Qt.Key(event.key())]
            _, rows, columns = self._drawing.plan.shape
            spot = self._spot or self._cell_of_cross() or Spot(0, columns // 2, rows // 2)
            column, row = min(max(spot.column + right, 0), columns - 1), min(max(spot.row + up, 0), rows - 1)
            self._point(Spot(spot.panel, column, row))
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._spot is not None:
            self.chosen.emit(self._spot)
        else:
            super().keyPressEvent(event)

    # ---- drawn once for each state of the map

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        if self._drawing is None:
            return
        drawing, line = self._drawing, float(painter.fontMetrics().height())
        foot = self._key_lines() * (line + 3)
        each = (height - foot) / len(self._images)
        up = ticks(drawing.plan.y)
        left = max(painter.fontMetrics().horizontalAdvance(text) for _, text in up) + line + 8
        self._areas = []
        for panel in range(len(self._images)):
            head = line + 2 if drawing.plan.by else 4.0
            area = QRectF(left, panel * each + head, max(width - left - 6, 1.0), max(each - head - 2 * line - 8, 1.0))
            self._areas.append(area)
            self._draw_panel(painter, drawing, panel, area)
        self._draw_key(painter, drawing, height - foot, width, line)

    def _draw_panel(self, painter: QPainter, drawing: Drawing, panel: int, area: QRectF) -> None:
        line = painter.fontMetrics().height()
        painter.fillRect(area, theme.color("grid"))
        painter.drawImage(area, self._images[panel])
        painter.setPen(QPen(QColor("#000000"), 1))
        _, rows, columns = drawing.plan.shape
        wide, high = area.width() / columns, area.height() / rows
        painter.drawLines(
            [
                QLineF(
                    area.left() + one[0] * wide, area.bottom() - one[1] * high,
                    area.left() + other[0] * wide, area.bottom() - other[1] * high,
                )
                for one, other in drawing.boundary(panel)
            ]
        )  # fmt: skip
        painter.setPen(theme.color("text"))
        if drawing.plan.by:
            above = QRectF(area.left(), area.top() - line - 2, area.width(), line)
            painter.drawText(above, Qt.AlignmentFlag.AlignLeft, drawing.name_of(panel))
        self._draw_axes(painter, drawing, area, wide, high)

    def _draw_axes(self, painter: QPainter, drawing: Drawing, area: QRectF, wide: float, high: float) -> None:
        plan, metrics = drawing.plan, painter.fontMetrics()
        line = metrics.height()
        painter.setPen(theme.color("dim"))
        right = -1.0  # of the previous name, as names must not touch
        for place, text in ticks(plan.x):
            middle, half = area.left() + place * wide, metrics.horizontalAdvance(text) / 2
            start = min(max(middle - half, area.left() - 4), area.right() + 6 - 2 * half)
            if start > right + 4:
                painter.drawLine(QPointF(middle, area.bottom()), QPointF(middle, area.bottom() + 3))
                painter.drawText(QPointF(start, area.bottom() + line + 1), text)
                right = start + 2 * half
        for place, text in ticks(plan.y):
            middle = area.bottom() - place * high
            painter.drawLine(QPointF(area.left() - 3, middle), QPointF(area.left(), middle))
            beside = QRectF(0, middle - line / 2, area.left() - 6, line)
            painter.drawText(beside, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text)
        painter.setPen(theme.color("text"))
        below = QRectF(area.left(), area.bottom() + line + 4, area.width(), line)
        painter.drawText(below, Qt.AlignmentFlag.AlignHCenter, name_with_unit(plan.x, plan.experiment))
        painter.save()
        painter.translate(0, area.center().y())
        painter.rotate(-90)
        along = QRectF(-area.height() / 2, 0, area.height(), line)
        painter.drawText(along, Qt.AlignmentFlag.AlignHCenter, name_with_unit(plan.y, plan.experiment))
        painter.restore()

    def _draw_key(self, painter: QPainter, drawing: Drawing, top: float, width: float, line: float) -> None:
        for index, (colour, text) in enumerate(drawing.key):
            x = index % KEY_COLUMNS * width / KEY_COLUMNS
            y = top + index // KEY_COLUMNS * (line + 3)
            swatch = QRectF(x + 0.5, y + (line - SWATCH) / 2, SWATCH, SWATCH)
            unknown = colour == UNKNOWN
            painter.fillRect(swatch, theme.color("grid") if unknown else QColor(colour))
            if unknown:
                painter.setPen(theme.color("dim"))
                painter.drawRect(swatch)
            painter.setPen(theme.color("text"))
            painter.drawText(QPointF(x + SWATCH + 6, y + painter.fontMetrics().ascent()), text)

    def _key_lines(self) -> int:
        return -(-len(self._drawing.key) // KEY_COLUMNS) if self._drawing else 0

    # ---- drawn over it

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self._drawing is None or not self._areas:
            return
        with QPainter(self) as painter:
            if self._spot is not None:
                painter.setBrush(Qt.BrushStyle.NoBrush)
                for colour, room in (("#000000", 1.5), ("#ffffff", 0.5)):
                    painter.setPen(QPen(QColor(colour), 1))
                    painter.drawRect(self._cell(self._spot).adjusted(-room, -room, room, room))
            if self._dragging and self._spot is not None:
                self._draw_cross(painter, (self._spot.panel, self._spot.column + 0.5, self._spot.row + 0.5))
            elif self._cross is not None:
                self._draw_cross(painter, self._cross)

    def _draw_cross(self, painter: QPainter, place: Place) -> None:
        middle = self._point_of(place)
        for colour, width in (("#000000", 4.0), ("#ffffff", 1.6)):
            pen = QPen(QColor(colour), width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap)
            if self._dashed:
                pen.setDashPattern([DASH / width, GAP / width])  # in widths of the pen
            painter.setPen(pen)
            for arm in (QPointF(ARM, 0), QPointF(-ARM, 0), QPointF(0, ARM), QPointF(0, -ARM)):
                painter.drawLine(middle, middle + arm)

    # ---- geometry

    def _at(self, position: QPointF, *, clamped: bool = False) -> Spot | None:
        """Return the cell at a pixel; with `clamped` the nearest one."""
        for panel, area in enumerate(self._areas):
            inside = area.contains(position)
            if self._drawing is None or not (inside or (clamped and panel == self._nearest(position))):
                continue
            _, rows, columns = self._drawing.plan.shape
            column = int((position.x() - area.left()) / area.width() * columns)
            row = int((area.bottom() - position.y()) / area.height() * rows)
            return Spot(panel, min(max(column, 0), columns - 1), min(max(row, 0), rows - 1))
        return None

    def _nearest(self, position: QPointF) -> int:
        return min(range(len(self._areas)), key=lambda panel: abs(self._areas[panel].center().y() - position.y()))

    def _cell(self, spot: Spot) -> QRectF:
        corner = self._point_of((spot.panel, spot.column, spot.row + 1.0))
        return QRectF(corner, self._point_of((spot.panel, spot.column + 1.0, spot.row)))

    def _point_of(self, place: Place) -> QPointF:
        assert self._drawing is not None
        area, (_, rows, columns) = self._areas[place[0]], self._drawing.plan.shape
        return QPointF(area.left() + place[1] / columns * area.width(), area.bottom() - place[2] / rows * area.height())

    def _near_cross(self, position: QPointF) -> bool:
        if self._cross is None or not self._areas:
            return False
        return QLineF(position, self._point_of(self._cross)).length() <= NEAR

    def _cell_of_cross(self) -> Spot | None:
        return Spot(self._cross[0], int(self._cross[1]), int(self._cross[2])) if self._cross else None

    def _point(self, spot: Spot | None) -> None:
        if spot != self._spot:
            self._spot = spot
            self.pointed.emit(spot)
            self.update()


def _image(drawing: Drawing, panel: int) -> QImage:
    """Return an image with one pixel for each cell of a panel, transparent if nothing is known of it yet."""
    outcomes = drawing.grid.outcomes[panel]
    height, width = outcomes.shape
    pixels = np.empty((height, width, 4), np.uint8)
    pixels[..., :3] = (drawing.colours[panel] * 255).round()
    pixels[..., 3] = np.where(outcomes == UNTRAINED, 0, 255)
    upside = np.ascontiguousarray(pixels[::-1])  # the first row of an image is the topmost
    return QImage(upside.tobytes(), width, height, 4 * width, QImage.Format.Format_RGBA8888).copy()
