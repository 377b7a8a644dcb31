"""How a run is painted in the list: a box to draw it over the plots, its title, what came of it, when and how long, its tags."""

from __future__ import annotations

import time

from PySide6.QtCore import QAbstractItemModel, QEvent, QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from gradstudio.gui import run_words
from gradstudio.gui.plots.overlay import LETTERS, color
from gradstudio.gui.run_list import RunList
from gradstudio.gui.theme import theme
from gradstudio.session.library.store import Entry

BOX = 16  # px
LEFT = 40  # px from the edge to the words
SPARE = 7  # px over and under the words

_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_CENTER = Qt.AlignmentFlag.AlignCenter
_ELIDED = Qt.TextElideMode.ElideRight

Index = QModelIndex | QPersistentModelIndex


class RunRows(QStyledItemDelegate):
    def __init__(self) -> None:
        super().__init__()
        self.restyle()

    def restyle(self) -> None:
        """Take on the theme's fonts."""
        self._title, self._small, self._bold = theme.font(1.0, QFont.Weight.DemiBold), theme.font(0.88), theme.font(0.8, QFont.Weight.Bold)
        self._high, self._low = QFontMetrics(self._title).height(), QFontMetrics(self._small).height()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        entry = index.data(RunList.ENTRY)
        third = self._low + 4 if entry.tags or entry.note else 0
        return QSize(160, 2 * SPARE + self._high + 3 + self._low + third)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry, slot = index.data(RunList.ENTRY), index.data(RunList.SLOT)
        rect, state = option.rect, option.state
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme.color("tint"))
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(rect, theme.color("grid"))
        painter.fillRect(rect.left(), rect.bottom(), rect.width(), 1, theme.color("grid"))
        if index.data(RunList.CURRENT):
            painter.fillRect(rect.left(), rect.top(), 3, rect.height(), theme.color("accent"))
        if state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(theme.color("accent"), 1))
            painter.drawRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -1.5))
        self._paint_box(painter, self._box(rect), slot)
        self._paint_words(painter, rect.adjusted(LEFT, SPARE, -12, -SPARE), entry, bool(index.data(RunList.CURRENT)))
        painter.restore()

    def editorEvent(self, event: QEvent, model: QAbstractItemModel, option: QStyleOptionViewItem, index: Index) -> bool:
        """The box answers to the mouse, a little around it too, and to Space."""
        if isinstance(event, QMouseEvent) and event.button() == Qt.MouseButton.LeftButton:
            around = self._box(option.rect).adjusted(-10, -10, 6, 10)
            if not around.contains(event.position().toPoint()):
                return False
            if event.type() == QEvent.Type.MouseButtonRelease:
                self._toggle(model, index)
            return True
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and event.key() == Qt.Key.Key_Space:
            self._toggle(model, index)
            return True
        return False

    @staticmethod
    def _toggle(model: QAbstractItemModel, index: Index) -> None:
        ticked = Qt.CheckState(index.data(Qt.ItemDataRole.CheckStateRole)) == Qt.CheckState.Checked
        model.setData(index, Qt.CheckState.Unchecked if ticked else Qt.CheckState.Checked, Qt.ItemDataRole.CheckStateRole)

    def _box(self, rect: QRect) -> QRect:
        return QRect(rect.left() + 13, rect.top() + SPARE + (self._high - BOX) // 2, BOX, BOX)

    def _paint_box(self, painter: QPainter, box: QRect, slot: int | None) -> None:
        """Empty, or filled with the colour and the letter that the run has in the plots."""
        inner = QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(QPen(theme.color("dim"), 1) if slot is None else Qt.PenStyle.NoPen)
        painter.setBrush(theme.color("panel") if slot is None else color(slot))
        painter.drawRoundedRect(inner, 4, 4)
        if slot is not None:
            painter.setPen(QColor("#0c1116" if theme.dark else "#ffffff"))
            painter.setFont(self._bold)
            painter.drawText(box, _CENTER, LETTERS[slot])

    def _paint_words(self, painter: QPainter, rect: QRect, entry: Entry, current: bool) -> None:
        word, role = run_words.outcome(entry)
        painter.setFont(self._small)
        metrics = painter.fontMetrics()
        painter.setPen(theme.color(role))
        line = QRect(rect.left(), rect.top(), rect.width(), self._high)
        painter.drawText(line, _RIGHT, word)
        taken = metrics.horizontalAdvance(word) + 18
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color(role))
        painter.drawEllipse(QRectF(line.right() - taken + 8, line.center().y() - 2.5, 6, 6))
        painter.setFont(self._title)
        painter.setPen(theme.color("accent" if current else "text"))
        painter.drawText(line, _LEFT, _fitted(painter, entry.title, line.width() - taken))
        painter.setFont(self._small)
        painter.setPen(theme.color("dim"))
        line = QRect(rect.left(), line.bottom() + 4, rect.width(), self._low)
        painter.drawText(line, _LEFT, _fitted(painter, run_words.line(entry, time.time()), line.width()))
        if entry.tags or entry.note:
            self._paint_own(painter, QRect(rect.left(), line.bottom() + 5, rect.width(), self._low), entry)

    def _paint_own(self, painter: QPainter, line: QRect, entry: Entry) -> None:
        """What a person wrote: tags, each on a ground of its own, then the note."""
        left, metrics = line.left(), painter.fontMetrics()
        for tag in entry.tags:
            width = min(metrics.horizontalAdvance(tag) + 10, line.right() - left)
            if width < 30:
                return
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color("accent", 34))
            painter.drawRoundedRect(QRectF(left, line.top(), width, line.height()), 4, 4)
            painter.setPen(theme.color("text"))
            painter.drawText(QRect(left + 5, line.top(), width - 10, line.height()), _LEFT, _fitted(painter, tag, width - 9))
            left += width + 5
        painter.setPen(theme.color("dim"))
        if entry.note and line.right() - left > 30:
            room = QRect(left + 1, line.top(), line.right() - left, line.height())
            painter.drawText(room, _LEFT, _fitted(painter, " ".join(entry.note[:200].split()), room.width()))


def _fitted(painter: QPainter, text: str, width: int) -> str:
    return painter.fontMetrics().elidedText(" ".join(text[:300].split()), _ELIDED, max(width, 0))
