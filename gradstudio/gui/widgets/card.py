"""A card: something to choose with a click or Enter, with a title, some lines of text and a line of facts."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QEnterEvent, QFont, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from gradstudio.gui.theme import theme

MARGIN = 11  # px
DONE = "finished"  # among the facts, if it has a check mark


class Card(QAbstractButton):
    """Its text is set by `tell`. A subclass draws a picture above that."""

    size_at_first = QSize(236, 158)  # px at normal text
    picture_height = 0  # px of it

    def __init__(self, parent: QWidget | None, title: str) -> None:
        super().__init__(parent)
        self.title, self.told = title, ""
        self.facts: list[str] = []
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def sizeHint(self) -> QSize:
        return self.size_at_first * theme.zoom

    def tell(self, told: str, facts: list[str]) -> None:
        """Set the text of the card, and a few facts."""
        self.told, self.facts = told, facts
        self.setToolTip(f"<qt>{escape(told)}</qt>")  # rich text is wrapped
        self.setAccessibleName(f"{self.title}. {', '.join(facts)}. {told}")
        self.update()

    def paint_picture(self, painter: QPainter, place: QRectF) -> None:
        """Draw the part above the title."""

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        chosen = self.hasFocus() or self.underMouse() or self.isChecked()
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(theme.color("accent" if chosen else "line"), 1.5 if self.hasFocus() else 1))
            painter.setBrush(theme.color("panel"))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 7, 7)
            inside = QRectF(self.rect()).adjusted(MARGIN, MARGIN - 2, -MARGIN, -MARGIN + 2)
            top = inside.y()
            if self.picture_height:  # it has the extra room of a larger card
                height = self.picture_height * theme.zoom + max(self.height() - self.sizeHint().height(), 0)
                self.paint_picture(painter, QRectF(inside.x(), top, inside.width(), height))
                top += height + 5
            self._write(painter, inside, top)

    def _write(self, painter: QPainter, inside: QRectF, top: float) -> None:
        painter.setFont(theme.font(1.0, QFont.Weight.DemiBold))
        metrics = painter.fontMetrics()
        painter.setPen(theme.color("text"))
        title = metrics.elidedText(self.title, Qt.TextElideMode.ElideRight, int(inside.width()))
        painter.drawText(QRectF(inside.x(), top, inside.width(), metrics.height()), title)
        top += metrics.height() + 1
        painter.setFont(theme.font(0.85))
        metrics = painter.fontMetrics()
        foot = inside.bottom() - metrics.height()
        painter.setPen(theme.color("dim"))
        lines = int((foot - 2 - top) // metrics.height())
        for line in _lines(painter, self.told, inside.width(), max(lines, 1)):
            painter.drawText(QRectF(inside.x(), top, inside.width(), metrics.height()), line)
            top += metrics.height()
        below = QRectF(inside.x(), foot, inside.width(), metrics.height())
        if DONE in self.facts:
            done = f"✓ {DONE}"
            painter.setPen(theme.color("good"))
            painter.drawText(below, Qt.AlignmentFlag.AlignRight, done)
            below.setWidth(below.width() - metrics.horizontalAdvance(done) - 6)
        painter.setPen(theme.color("dim"))
        facts = " · ".join(fact for fact in self.facts if fact != DONE)
        text = metrics.elidedText(facts, Qt.TextElideMode.ElideRight, int(below.width()))
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, text)


def _lines(painter: QPainter, text: str, width: float, count: int) -> list[str]:
    """Return a text in at most `count` lines of a width; the last one is elided."""
    metrics, lines, words = painter.fontMetrics(), [], text.split()
    while words and len(lines) < count:
        if len(lines) == count - 1:
            lines.append(metrics.elidedText(" ".join(words), Qt.TextElideMode.ElideRight, int(width)))
            break
        line = words.pop(0)
        while words and metrics.horizontalAdvance(f"{line} {words[0]}") <= width:
            line += f" {words.pop(0)}"
        lines.append(line)
    return lines
