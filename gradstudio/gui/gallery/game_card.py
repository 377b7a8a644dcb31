"""The card of the game: a random run with a hidden fault, one click away."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QPen, QPolygonF

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.card import Card

PICTURE = 64  # px of the width
CURVE = (0.35, 0.5, 0.42, 0.6, 0.55, 0.68, 0.62, 0.7, 0.2, 0.05)  # of a loss that breaks, from top to bottom


class GameCard(Card):
    """Asks why a run broke, and shows the progress of its making: `share` of it, None while nothing is made."""

    size_at_first = QSize(400, 62)

    def __init__(self) -> None:
        super().__init__(None, "A run broke tonight. Why?")
        self.setAccessibleDescription("Makes a random run with a hidden fault, and opens it")
        self.show_state(self.title, "", "")

    def show_state(self, title: str, told: str, does: str, share: float | None = None) -> None:
        """Show which run it is, a text about it, and the effect of a click."""
        self.title, self.does, self.share = title, does, share
        self.tell(told, [does])

    def paintEvent(self, event: QPaintEvent) -> None:
        chosen = self.hasFocus() or self.underMouse()
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(theme.color("accent" if chosen else "line"), 1.5 if self.hasFocus() else 1))
            painter.setBrush(theme.color("panel"))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 7, 7)
            inside = QRectF(self.rect()).adjusted(14, 8, -14, -8)
            width = PICTURE * theme.zoom
            self._draw_curve(painter, QRectF(inside.x(), inside.y() + 2, width, inside.height() - 4))
            inside.adjust(width + 26, 0, 0, 0)
            self._write_game(painter, inside)
            if self.share is not None:
                line = QRectF(8, self.height() - 5, (self.width() - 16) * self.share, 3)
                painter.fillRect(line, theme.color("accent"))

    def _draw_curve(self, painter: QPainter, place: QRectF) -> None:
        step = place.width() / len(CURVE)
        points = [QPointF(place.x() + at * step, place.y() + level * place.height()) for at, level in enumerate(CURVE)]
        painter.setPen(QPen(theme.color("accent"), 1.6))
        painter.drawPolyline(QPolygonF(points))
        painter.setPen(QPen(theme.color("bad"), 1.8))
        for slope in (1, -1):
            painter.drawLine(points[-1] + QPointF(3, -5 * slope), points[-1] + QPointF(12, 5 * slope))

    def _write_game(self, painter: QPainter, inside: QRectF) -> None:
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.setFont(theme.font(1.0, QFont.Weight.DemiBold))
        painter.setPen(theme.color("accent"))
        painter.drawText(inside, Qt.AlignmentFlag.AlignRight | middle, self.does)
        inside.setRight(inside.right() - painter.fontMetrics().horizontalAdvance(self.does) - 16)
        upper, lower = QRectF(inside), QRectF(inside)
        upper.setBottom(inside.center().y() + 1)
        lower.setTop(inside.center().y() + 1)
        painter.setFont(theme.font(1.15, QFont.Weight.DemiBold))
        painter.setPen(theme.color("text"))
        painter.drawText(upper, middle, self.title)
        painter.setFont(theme.font(0.88))
        painter.setPen(theme.color("dim"))
        text = painter.fontMetrics().elidedText(self.told, Qt.TextElideMode.ElideRight, int(lower.width()))
        painter.drawText(lower, middle, text)
