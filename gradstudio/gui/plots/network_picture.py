"""The picture of a network: blocks in forward order, thin edges forward, and edges backward whose width and colour
follow the log of the gradient. A single step sends a light forward and then backward."""

from __future__ import annotations

import math
from typing import NamedTuple

from PySide6.QtCore import QEasingCurve, QEvent, QPointF, QRectF, Qt, QVariantAnimation, Signal
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QPolygonF,
    QRadialGradient,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QStyle, QWidget

from gradstudio.core.text import number, short_name
from gradstudio.gui.drawing.network_blocks import Birth, Flow
from gradstudio.gui.drawing.network_edges import draw_edge, draw_legend, edge_color, edge_width
from gradstudio.gui.theme import theme

PULSE = 200  # ms that the light takes, forward and backward
NARROWEST, GAP = 46, 26  # px of a block and of an edge at normal text
HIGHEST = 78  # px of a block


class NetworkState(NamedTuple):
    """The content of the picture. `names` and `flows` are those of the blocks, without input and loss; `levels` are the
    ends of the scale as powers of ten."""

    names: tuple[str, ...]
    flows: tuple[Flow, ...]
    levels: tuple[int, int]
    birth: Birth | None = None
    what: str = ""  # what was born: NaN or Inf
    head: str = "input"
    foot: str = "loss"


class NetworkPicture(QWidget):
    read_changed = Signal()  # another block is under the pointer, or chosen by a key
    block_chosen = Signal(int)  # by a click or Enter

    def __init__(self) -> None:
        super().__init__()
        self._shown: NetworkState | None = None
        self._still: QPixmap | None = None  # everything except the gradients
        self._drawn: QPixmap | None = None
        self._box_places: list[QRectF] = []  # the areas of the blocks, once computed
        self.read: int | None = None  # the current block
        self._light = QVariantAnimation(self)
        self._light.setDuration(PULSE)
        self._light.setStartValue(0.0)
        self._light.setEndValue(1.0)
        self._light.setEasingCurve(QEasingCurve.Type.Linear)
        self._light.valueChanged.connect(lambda _: self.update())
        self._light.finished.connect(self.update)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        self.setMinimumHeight(48)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Network: gradient of each block")
        self.setAccessibleDescription("Nothing was drawn yet.")

    @property
    def state(self) -> NetworkState | None:
        return self._shown

    @property
    def is_animated(self) -> bool:
        """Whether the light is moving."""
        return self._light.state() == QVariantAnimation.State.Running

    @property
    def most_blocks(self) -> int:
        """Number of blocks for which there is room, besides the input and the loss."""
        return max(int((self.width() - 20) / ((NARROWEST + GAP) * theme.zoom)) - 2, 3)

    def show_state(self, shown: NetworkState | None) -> None:
        before, self._shown = self._shown, shown
        if shown == before:
            return
        if self.read is not None and (shown is None or self.read >= len(shown.names)):
            self.read = None
        if shown is None or before is None or _but_gradients(shown) != _but_gradients(before):
            self.redraw()
        self._drawn = None
        self.update()

    def send_light(self) -> None:
        """Send a light forward and then backward, unless it is not visible or the desktop asks for less motion."""
        style = self.style()
        moves = style.styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration, None, self) > 0
        if self._shown is not None and self.isVisible() and moves and not self.visibleRegion().isEmpty():
            self._light.stop()
            self._light.start()

    def redraw(self) -> None:
        """Redraw everything."""
        self._still = self._drawn = None
        self._box_places = []
        self.update()

    # ---- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        state = self._shown
        if state is None:
            return
        if self._still is None:
            scale = self.devicePixelRatioF()
            self._still = QPixmap(self.size() * scale)
            self._still.setDevicePixelRatio(scale)
            self._still.fill(Qt.GlobalColor.transparent)
            with QPainter(self._still) as painter:
                self._draw_still(painter, state)
            self._drawn = None
        if self._drawn is None:
            self._drawn = self._still.copy()
            with QPainter(self._drawn) as painter:
                self._draw_gradients(painter, state)
        with QPainter(self) as painter:
            painter.drawPixmap(0, 0, self._drawn)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            if self.read is not None:
                painter.setPen(QPen(theme.color("accent"), 2))
                painter.drawRoundedRect(self._box(self.read + 1).adjusted(-3, -3, 3, 3), 7, 7)
            if self.is_animated:
                self._draw_light(painter, state, float(self._light.currentValue()))

    def _draw_still(self, painter: QPainter, shown: NetworkState) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font(0.8))
        for place in range(len(shown.names) + 1):
            self._draw_forward(painter, place)
        for place, name in enumerate((shown.head, *shown.names, shown.foot)):
            self._draw_box(painter, place, name, shown)
        if self._has_legend:
            draw_legend(painter, self.width(), self.height(), shown.levels)

    def _draw_gradients(self, painter: QPainter, shown: NetworkState) -> None:
        """Draw the edge that leads back into each block, which is the gradient of that block, and its number."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font(0.8))
        boxes = self._boxes()
        for flow, box, after in zip(shown.flows, boxes[1:], boxes[2:], strict=False):
            y = box.top() + 0.66 * box.height()
            draw_edge(painter, QPointF(box.right() + 2, y), QPointF(after.left() - 2, y), flow, shown.levels)
        born = None if shown.birth is None else shown.birth.block + 1
        dim, bad, line = theme.color("dim"), theme.color("bad"), painter.fontMetrics().height()
        for place, box in enumerate(boxes):
            below = QRectF(box.left() - 14, box.bottom() + 1, box.width() + 28, line)
            if place == born:
                painter.setPen(bad)
                painter.drawText(below, Qt.AlignmentFlag.AlignCenter, f"× {shown.what} born")
            elif 0 < place <= len(shown.flows):
                flow = shown.flows[place - 1]
                painter.setPen(bad if flow.state == "nonfinite" else dim)
                label = "?" if flow.state == "unknown" else number(flow.norm, 2)
                painter.drawText(below, Qt.AlignmentFlag.AlignCenter, label)

    def _box(self, place: int) -> QRectF:
        """Return the area of a block: 0 is the input, and the last the loss."""
        return self._boxes()[place]

    def _boxes(self) -> list[QRectF]:
        if self._box_places or self._shown is None:
            return self._box_places
        count, zoom = len(self._shown.names) + 2, theme.zoom
        line = self.fontMetrics().height()
        gap = GAP * zoom
        wide = min((self.width() - 20 - gap * (count - 1)) / count, 104 * zoom)
        gap = min((self.width() - 20 - wide * count) / max(count - 1, 1), 2.2 * gap)
        left = (self.width() - count * wide - (count - 1) * gap) / 2
        room = self.height() - (2.4 if self._has_legend else 1.2) * line
        high = min(room - 4, HIGHEST * zoom)
        top = 2 + (room - high) / 2
        self._box_places = [QRectF(left + place * (wide + gap), top, wide, high) for place in range(count)]
        return self._box_places

    def _draw_box(self, painter: QPainter, place: int, name: str, shown: NetworkState) -> None:
        box = self._box(place)
        born = shown.birth is not None and shown.birth.block == place - 1
        broken = 0 < place <= len(shown.names) and shown.flows[place - 1].state == "nonfinite"
        painter.setPen(QPen(theme.color("bad" if born or broken else "dim"), 3 if born else 1.2))
        painter.setBrush(theme.color("bad", 40) if born else theme.color("background"))
        painter.drawRoundedRect(box, 5, 5)
        letters = max(int(box.width() / (painter.fontMetrics().averageCharWidth() + 0.5)), 3)
        painter.setPen(theme.color("text"))
        text = short_name(name, letters)
        if "…" in text and "–" in name:  # each end in its own line, rather than an unreadable one
            text = "–\n".join(short_name(part, letters - 1) for part in name.split("–"))
        painter.drawText(box, Qt.AlignmentFlag.AlignCenter, text)

    def _draw_forward(self, painter: QPainter, place: int) -> None:
        one, other = self._box(place), self._box(place + 1)
        y = one.top() + 0.25 * one.height()
        painter.setPen(QPen(theme.color("dim", 150), 1.2))
        painter.drawLine(QPointF(one.right() + 2, y), QPointF(other.left() - 5, y))
        tip = QPointF(other.left() - 2, y)
        painter.setBrush(theme.color("dim", 150))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawPolygon(QPolygonF([tip, tip + QPointF(-5, -3), tip + QPointF(-5, 3)]))

    def _draw_light(self, painter: QPainter, shown: NetworkState, part: float) -> None:
        """Draw the light at a part of its way; it stops where the first NaN or Inf was born."""
        count, birth = len(shown.names) + 1, shown.birth
        way = 2.0 * part * count  # in edges: to the loss, and back from it to the first block
        stop = None if birth is None else (2 * count - birth.block - 1 if birth.backward else birth.block + 1)
        stopped = stop is not None and way >= stop
        way = min(way, stop) if stop is not None else way
        ahead = way if way <= count else max(2 * count - way, 1.0)
        left, right = self._box(int(ahead)), self._box(min(int(ahead) + 1, count))
        within = ahead - int(ahead)
        x = left.center().x() + within * (right.center().x() - left.center().x())
        y = left.top() + (0.25 if way <= count else 0.66) * left.height()
        size = 14 * theme.zoom
        color = theme.color("bad") if stopped else theme.color("accent")
        if way > count and not stopped:
            flow = shown.flows[min(max(math.ceil(ahead) - 1, 0), len(shown.flows) - 1)]
            size = (5 + 0.9 * edge_width(flow, shown.levels)) * theme.zoom
            color = edge_color(flow, shown.levels)
        glow = QRadialGradient(QPointF(x, y), size)
        faint = QColor(color)
        faint.setAlpha(0)
        glow.setColorAt(0.0, color)
        glow.setColorAt(0.45, color)
        glow.setColorAt(1.0, faint)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QBrush(glow))
        painter.drawEllipse(QPointF(x, y), size, size)

    @property
    def _has_legend(self) -> bool:
        """Whether there is room for the legend, too."""
        return self.height() > 5 * self.fontMetrics().height()

    # ---- reading

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._read(self._block_at(event.position()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        block = self._block_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and block is not None:
            self.block_chosen.emit(block)

    def leaveEvent(self, event: QEvent) -> None:
        self._read(None)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._read(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        state, key = self._shown, event.key()
        moves: dict[int, int] = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        if state is None or not state.names:
            super().keyPressEvent(event)
        elif key in moves:
            start = -1 if moves[key] > 0 else 0
            self._read(((start if self.read is None else self.read) + moves[key]) % len(state.names))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.read is not None:
            self.block_chosen.emit(self.read)
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.redraw()

    def _block_at(self, place: QPointF) -> int | None:
        """Return the block at a point, or the one that the edge there leads back into."""
        state = self._shown
        for block in range(len(state.names)) if state is not None else ():
            if self._box(block + 1).left() <= place.x() < self._box(block + 2).left():
                return block
        return None

    def _read(self, block: int | None) -> None:
        if block != self.read:
            self.read = block
            self.update()
            self.read_changed.emit()


def _but_gradients(state: NetworkState) -> tuple:
    return state._replace(flows=()), [flow.state == "nonfinite" for flow in state.flows]
