"""How a branch is painted: as a run is, below the run that it branched from, with lines that join them; and the editor
for its name."""

from __future__ import annotations

from PySide6.QtCore import QAbstractItemModel, QRect, QRectF, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QLineEdit, QStyleOptionViewItem, QWidget

from gradstudio.core.text import LONGEST_TITLE
from gradstudio.gui.branches.branch_list import BranchList, Member
from gradstudio.gui.runs.run_painter import BOX, LEFT, SPARE, Index, RunPainter
from gradstudio.gui.theme import theme
from gradstudio.session.words.run_texts import RowTexts

STEP = 18  # px by which a branch is indented
DEEPEST = 6  # most indents of a row, so that its texts have room
GAP = 3  # px between a line and a box


class BranchPainter(RunPainter):
    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(index.data(Qt.ItemDataRole.EditRole), parent)
        editor.setMaxLength(LONGEST_TITLE)
        editor.setAccessibleName("Name of the branch")
        editor.setToolTip(
            "Names the branch: Enter applies the name, Escape discards it; without a name, it is called by what changed"
        )
        editor.selectAll()
        return editor

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        """Keep the text that a person is writing, whatever becomes of the run meanwhile."""

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text(), Qt.ItemDataRole.EditRole)

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        left = option.rect.left() + self._indent(index) + LEFT - 8
        high = editor.sizeHint().height()
        editor.setGeometry(
            left, option.rect.top() + SPARE + (self._high - high) // 2, option.rect.right() - 8 - left, high
        )

    # ---- inside

    def _indent(self, index: Index) -> int:
        return STEP * min(index.data(BranchList.MEMBER).depth, DEEPEST)

    def _has_third(self, index: Index) -> bool:
        return bool(index.data(BranchList.MEMBER).words.note)

    def _words(self, index: Index) -> RowTexts:
        return index.data(BranchList.MEMBER).words

    def _paint_mark(self, painter: QPainter, rect: QRect, index: Index) -> None:
        member, box = index.data(BranchList.MEMBER), self._box(rect)
        self._paint_lines(painter, rect, box, member)
        if not member.current:
            self._paint_box(painter, box, member.slot, member.shown)
            return
        painter.setPen(Qt.PenStyle.NoPen)  # its curve is the plain one, in the accent colour
        painter.setBrush(theme.color("accent"))
        painter.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setBrush(theme.color("on_accent"))
        painter.drawEllipse(QRectF(box).center(), 3, 3)

    def _paint_lines(self, painter: QPainter, rect: QRect, box: QRect, member: Member) -> None:
        """Paint the lines from each run down to its branches."""
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(QPen(theme.color("dim", 130), 1))
        depth = min(member.depth, DEEPEST)
        left, middle = box.center().x() - STEP * depth, box.center().y()
        for level in range(depth):
            across, goes_on = left + STEP * level, member.rails[level]
            if level == depth - 1:
                painter.drawLine(across, rect.top(), across, rect.bottom() if goes_on else middle)
                painter.drawLine(across, middle, box.left() - GAP, middle)
            elif goes_on:
                painter.drawLine(across, rect.top(), across, rect.bottom())
        if member.parent and member.depth < DEEPEST:
            painter.drawLine(box.center().x(), box.top() + BOX + GAP, box.center().x(), rect.bottom())
        painter.restore()
