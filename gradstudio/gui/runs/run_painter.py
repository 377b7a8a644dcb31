"""How a run is painted in a list: a box to draw it over the plots, title, outcome, date and length, tags; a branch
below the run that it branched from, with connecting lines. And the editor for its name."""

from __future__ import annotations

import re

from PySide6.QtCore import QAbstractItemModel, QEvent, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from gradstudio.core.text import LONGEST_TITLE
from gradstudio.gui.drawing.overlay import LETTERS, MOST, NAMES, color
from gradstudio.gui.runs.row_list import Index, Look, RowList
from gradstudio.gui.theme import theme
from gradstudio.session.words.run_texts import RowTexts

BOX = 16  # px
LEFT = 40  # px from the edge to the texts
SPARE = 7  # px above and below the texts
STEP = 18  # px by which a branch is indented
DEEPEST = 6  # most indents of a row, so that its texts have room
GAP = 3  # px between a line and a box

MARKS = re.compile(r"(?m)^ *(#{1,6}|[-*+]) +|\*\*|`")  # of Markdown, which one line of a note does not need
LINK = re.compile(r"!?\[([^]\n]*)\]\([^)\n]*\)")

_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_CENTER = Qt.AlignmentFlag.AlignCenter
_ELIDED = Qt.TextElideMode.ElideRight


def one_line_of(note: str) -> str:
    """Return the beginning of a note as one line, without Markdown markup and link targets."""
    return " ".join(MARKS.sub("", LINK.sub(r"\1", note[:400])).split())[:200]


class RunPainter(QStyledItemDelegate):
    def __init__(self) -> None:
        super().__init__()
        self.restyle()

    def restyle(self) -> None:
        """Use the theme's fonts."""
        self._title, self._strong = theme.font(1.0, QFont.Weight.Medium), theme.font(1.0, QFont.Weight.DemiBold)
        self._small, self._letter = theme.font(0.88), theme.font(0.8, QFont.Weight.DemiBold)
        self._high, self._low = QFontMetrics(self._title).height(), QFontMetrics(self._small).height()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        third = self._low + 4 if index.data(RowList.HAS_NOTES) else 0
        return QSize(160, 2 * SPARE + self._high + 3 + self._low + third)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        rect, state, look = option.rect, option.state, index.data(RowList.LOOK)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme.color("tint"))
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(rect, theme.color("grid"))
        painter.fillRect(rect.left(), rect.bottom(), rect.width(), 1, theme.color("grid"))
        if look.current:
            painter.fillRect(rect.left(), rect.top(), 3, rect.height(), theme.color("accent"))
        if state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(theme.color("accent"), 1))
            painter.drawRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -1.5))
        inner = rect.adjusted(_indent(look.depth), 0, 0, 0)
        self._paint_mark(painter, rect, look)
        words, slot = look.words, look.slot
        if slot is not None and slot >= MOST:  # what the letter in the box means
            words = words._replace(line=f"{NAMES[slot]} · {words.line}", short=f"{NAMES[slot]} · {words.short}")
        self.paint_words(painter, inner.adjusted(LEFT, SPARE, -12, -SPARE), words, look.current)
        painter.restore()

    def editorEvent(self, event: QEvent, model: QAbstractItemModel, option: QStyleOptionViewItem, index: Index) -> bool:
        """Tick the box on a click on it or close to it, and on Space."""
        if isinstance(event, QMouseEvent) and event.button() == Qt.MouseButton.LeftButton:
            around = self.box(option.rect, index.data(RowList.LOOK).depth).adjusted(-10, -10, 6, 10)
            if not around.contains(event.position().toPoint()):
                return False
            if event.type() == QEvent.Type.MouseButtonRelease:
                self.tick(model, index)
            return True
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and event.key() == Qt.Key.Key_Space:
            self.tick(model, index)
            return True
        return False

    def box(self, rect: QRect, depth: int = 0) -> QRect:
        """Return the area of the box of a row, given its depth below other runs."""
        return QRect(rect.left() + _indent(depth) + 13, rect.top() + SPARE + (self._high - BOX) // 2, BOX, BOX)

    @staticmethod
    def tick(model: QAbstractItemModel, index: Index) -> None:
        """Tick the box of a row, or untick it."""
        ticked = Qt.CheckState(index.data(Qt.ItemDataRole.CheckStateRole)) == Qt.CheckState.Checked
        model.setData(
            index, Qt.CheckState.Unchecked if ticked else Qt.CheckState.Checked, Qt.ItemDataRole.CheckStateRole
        )

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(index.data(Qt.ItemDataRole.EditRole), parent, maxLength=LONGEST_TITLE)
        editor.setAccessibleName("Name of the branch")
        editor.setToolTip(
            "Names the branch: Enter applies the name, Escape discards it; without a name, it is called by what changed"
        )
        editor.selectAll()
        return editor

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        """Keep the text that the user is writing, whatever happens to the run meanwhile."""

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text(), Qt.ItemDataRole.EditRole)

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        left = option.rect.left() + _indent(index.data(RowList.LOOK).depth) + LEFT - 8
        high = editor.sizeHint().height()
        editor.setGeometry(
            left, option.rect.top() + SPARE + (self._high - high) // 2, option.rect.right() - 8 - left, high
        )

    # ---- inside

    def _paint_mark(self, painter: QPainter, rect: QRect, look: Look) -> None:
        """Paint the part left of the texts."""
        box = self.box(rect, look.depth)
        self._paint_lines(painter, rect, box, look)
        if not look.current:
            self._paint_box(painter, box, look.slot, look.shown)
            return
        painter.setPen(Qt.PenStyle.NoPen)  # its curve is the plain one, in the accent colour
        painter.setBrush(theme.color("accent"))
        painter.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setBrush(theme.color("on_accent"))
        painter.drawEllipse(QRectF(box).center(), 3, 3)

    def _paint_lines(self, painter: QPainter, rect: QRect, box: QRect, look: Look) -> None:
        """Paint the lines from each run down to its branches."""
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(QPen(theme.color("dim", 130), 1))
        depth = min(look.depth, DEEPEST)
        left, middle = box.center().x() - STEP * depth, box.center().y()
        for level in range(depth):
            across, goes_on = left + STEP * level, look.rails[level]
            if level == depth - 1:
                painter.drawLine(across, rect.top(), across, rect.bottom() if goes_on else middle)
                painter.drawLine(across, middle, box.left() - GAP, middle)
            elif goes_on:
                painter.drawLine(across, rect.top(), across, rect.bottom())
        if look.parent and look.depth < DEEPEST:
            painter.drawLine(box.center().x(), box.top() + BOX + GAP, box.center().x(), rect.bottom())
        painter.restore()

    def _paint_box(self, painter: QPainter, box: QRect, slot: int | None, shown: bool) -> None:
        """Paint the box: empty, or with the colour and letter of the run in the plots; unfilled while it is hidden
        there."""
        painter.setPen(QPen(theme.color("dim") if slot is None else color(slot), 1))
        painter.setBrush(color(slot) if slot is not None and shown else theme.color("panel"))
        painter.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        if slot is not None:
            painter.setPen(QColor("#0c1116" if theme.dark else "#ffffff") if shown else color(slot))
            painter.setFont(self._letter)
            painter.drawText(box, _CENTER, LETTERS[slot])

    def paint_words(self, painter: QPainter, rect: QRect, words: RowTexts, current: bool) -> None:
        word, role = words.outcome
        painter.setFont(self._small)
        metrics = painter.fontMetrics()
        painter.setPen(theme.color(role))
        line = QRect(rect.left(), rect.top(), rect.width(), self._high)
        painter.drawText(line, _RIGHT, word)
        taken = metrics.horizontalAdvance(word) + 18
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color(role))
        painter.drawEllipse(QRectF(line.right() - taken + 8, line.center().y() - 2.5, 6, 6))
        painter.setFont(self._strong if current else self._title)
        painter.setPen(theme.color("accent" if current else "text"))
        painter.drawText(line, _LEFT, title_with_room(painter.fontMetrics(), words.title, line.width() - taken))
        painter.setFont(self._small)
        painter.setPen(theme.color("dim"))
        line = QRect(rect.left(), line.bottom() + 4, rect.width(), self._low)
        painter.drawText(line, _LEFT, _fit(painter, _with_room(metrics, words, line.width()), line.width()))
        if words.tags or words.note:
            self._paint_own(painter, QRect(rect.left(), line.bottom() + 5, rect.width(), self._low), words)

    def _paint_own(self, painter: QPainter, line: QRect, words: RowTexts) -> None:
        """Paint the user's own texts: tags, each on its own background, then the note."""
        left, metrics = line.left(), painter.fontMetrics()
        for tag in words.tags:
            if line.right() - left < 30:
                return
            width = min(metrics.horizontalAdvance(tag) + 10, line.right() - left)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color("accent", 34))
            painter.drawRoundedRect(QRectF(left, line.top(), width, line.height()), 4, 4)
            painter.setPen(theme.color("text"))
            painter.drawText(
                QRect(left + 5, line.top(), width - 10, line.height()), _LEFT, _fit(painter, tag, width - 9)
            )
            left += width + 5
        painter.setPen(theme.color("dim"))
        if words.note and line.right() - left > 30:
            room = QRect(left + 1, line.top(), line.right() - left, line.height())
            painter.drawText(room, _LEFT, _fit(painter, one_line_of(words.note), room.width()))


def _indent(depth: int) -> int:
    """Return the px by which a row is indented."""
    return STEP * min(depth, DEEPEST)


def _with_room(metrics: QFontMetrics, words: RowTexts, width: int) -> str:
    """Return as much of a run's line as there is room for, in whole parts if there is a shorter version."""
    if not words.short or metrics.horizontalAdvance(words.line) <= width:
        return words.line
    parts = words.short.split(" · ")
    while len(parts) > 1 and metrics.horizontalAdvance(" · ".join(parts)) > width:
        parts.pop()
    return " · ".join(parts)


def title_with_room(metrics: QFontMetrics, title: str, width: int) -> str:
    """Return as much of a run's title as there is room for. For a branch the name is shortened, rather than the change
    that distinguishes it from its parent."""
    title = " ".join(title[:300].split())
    name, colon, change = title.rpartition(": ")
    left = width - metrics.horizontalAdvance(colon + change)
    if " = " in change and metrics.horizontalAdvance(title) > width and left >= 4 * metrics.averageCharWidth():
        return metrics.elidedText(name, _ELIDED, left) + colon + change
    return metrics.elidedText(title, _ELIDED, max(width, 0))


def _fit(painter: QPainter, text: str, width: int) -> str:
    return painter.fontMetrics().elidedText(" ".join(text[:300].split()), _ELIDED, max(width, 0))
