"""A read-only program: with syntax colours and marks at the lines that changed."""

from __future__ import annotations

import difflib
import keyword
import re
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontMetrics,
    QKeyEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QResizeEvent,
    QSyntaxHighlighter,
    QTextBlock,
    QTextCharFormat,
    QTextCursor,
    QTextFormat,
)
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit, QWidget

from gradstudio.core.mistakes import MARK
from gradstudio.gui.theme import theme

MARGIN = 12  # px around the text, with the marks
NOTCH = 5  # px; half the height of the mark at a gap
GUTTER = 6  # px between the line numbers and the text
ABOVE_LOOP = 3  # rows above the training loop when it is shown
LOOP = "for step in range("
_NUMBER = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop
SIZE = 0.87  # size of the text, relative to the window's
_QUOTES = '"""'
_PARTS = re.compile(
    rf"(?P<comment>#.*)|(?P<string>{_QUOTES}.*?{_QUOTES}|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    rf"|(?P<keyword>\b(?:{'|'.join(keyword.kwlist)})\b)"
)
_ROLES = {"comment": "dim", "string": "good", "keyword": "accent"}


class ChangedLines(NamedTuple):
    """Numbers of new lines, from 0 on, and of the lines before which others were removed."""

    lines: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()

    @property
    def first(self) -> int | None:
        return min((*self.lines, *self.gaps), default=None)

    def to_look_at(self, text: str) -> int | None:
        """Return the most interesting line: the first with a mistake in it, or else the first."""
        written = text.splitlines()
        return next((line for line in self.lines if MARK in written[line]), self.first)


def changed_lines(before: str, after: str) -> ChangedLines:
    """Return which lines of `after` are new, and where lines of `before` were removed."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    lines, gaps = [], []
    for kind, _, _, start, stop in matcher.get_opcodes():
        if kind == "delete":
            gaps.append(start)
        elif kind != "equal":
            lines += range(start, stop)
    return ChangedLines(tuple(lines), tuple(gaps))


class Colors(QSyntaxHighlighter):
    """Colours comments, strings and keywords of Python, and lines with a mistake as a warning."""

    def highlightBlock(self, text: str) -> None:
        inside = self.previousBlockState() == 1  # inside a docstring of several lines
        start = 0
        if inside:
            end = text.find(_QUOTES)
            start = len(text) if end < 0 else end + len(_QUOTES)
            self.setFormat(0, start, _format("string"))
            inside = end < 0
        if MARK in text:
            self.setFormat(0, len(text), _format("mistake"))
            start = len(text)
        for part in _PARTS.finditer(text, start):
            kind = str(part.lastgroup)
            if kind == "string" and part[0] == '""' and text.startswith(_QUOTES, part.start()):
                self.setFormat(part.start(), len(text) - part.start(), _format("string"))
                inside = True
                break
            self.setFormat(part.start(), len(part[0]), _format(kind))
        self.setCurrentBlockState(1 if inside else 0)


def _format(kind: str) -> QTextCharFormat:
    form = QTextCharFormat()
    form.setForeground(theme.color(_ROLES.get(kind, "warning")))
    if kind == "mistake":
        form.setFontWeight(QFont.Weight.DemiBold)
    return form


class _LineNumbers(QWidget):
    """The line numbers, left of the program."""

    def __init__(self, view: CodeView) -> None:
        super().__init__(view)
        self._view = view

    def paintEvent(self, event: QPaintEvent) -> None:
        view, number = self._view, self._view.firstVisibleBlock().blockNumber()
        with QPainter(self) as painter:
            painter.setFont(view.font())
            painter.setPen(theme.color("dim"))
            block = view.firstVisibleBlock()
            while block.isValid():
                top, height = view.place(block)
                if top > self.height():
                    break
                painter.drawText(QRectF(0, top, self.width() - GUTTER, height), _NUMBER, str(number + 1))
                block, number = block.next(), number + 1


class CodeView(QPlainTextEdit):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("code")
        self.setReadOnly(True)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setTabChangesFocus(True)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.WidgetWidth)
        self.document().setDocumentMargin(MARGIN)
        self.changed = ChangedLines()
        self._colors = Colors(self.document())
        self._numbers = _LineNumbers(self)
        self.updateRequest.connect(lambda _, __: self._numbers.update())
        theme.apply_style(self, self._restyle)
        self._restyle()

    def show_code(self, text: str, marks: ChangedLines, line: int | None = None) -> None:
        """Show a program with marks; scroll no further than needed to make `line` visible."""
        place = self.verticalScrollBar().value()
        if text != self.toPlainText():
            self.setPlainText(text)
        self.changed = marks
        self._mark()
        self.verticalScrollBar().setValue(place)
        if line is not None:
            self._bring_into_sight(line)

    def show_loop(self) -> None:
        """Scroll to the training loop; to the beginning of a program without one."""
        lines = self.toPlainText().splitlines()
        loop = next((at for at, text in enumerate(lines) if text.lstrip().startswith(LOOP)), 0)
        self.verticalScrollBar().setValue(max(self._first_row(loop) - ABOVE_LOOP, 0) if loop else 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_room()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space:  # run and pause, wherever the focus is
            event.ignore()
            return
        super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        with QPainter(self.viewport()) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            accent = theme.color("accent")
            for line in self.changed.lines:
                top, height = self.place(self.document().findBlockByNumber(line))
                painter.fillRect(QRectF(0, top, 4, height), accent)
            for line in self.changed.gaps:
                painter.fillPath(self._notch(line), accent)

    def place(self, block: QTextBlock) -> tuple[float, float]:
        """Return the top of a line in the viewport, and its height."""
        place = self.blockBoundingGeometry(block).translated(self.contentOffset())
        return place.top(), place.height()

    def _notch(self, line: int) -> QPainterPath:
        """Return a triangle in the margin that points between two lines, to where others were removed."""
        last = self.blockCount() - 1
        top, height = self.place(self.document().findBlockByNumber(min(line, last)))
        gap = top + height if line > last else top
        path = QPainterPath(QPointF(0, gap - NOTCH))
        path.lineTo(QPointF(NOTCH + 2, gap))
        path.lineTo(QPointF(0, gap + NOTCH))
        return path

    def _bring_into_sight(self, line: int) -> None:
        """Scroll only as far as needed to make a line clearly visible."""
        bar, row = self.verticalScrollBar(), self._first_row(line)
        shown = max(bar.pageStep(), 1)
        if not bar.value() + 1 <= row <= bar.value() + shown - 3:
            bar.setValue(row - shown // 3)

    def _first_row(self, line: int) -> int:
        """Return how many rows are above a line; a long line has several."""
        return self.document().findBlockByNumber(line).firstLineNumber()

    def _make_room(self) -> None:
        """Reserve the space for the line numbers."""
        width = QFontMetrics(self.font()).horizontalAdvance("0000") + GUTTER
        self.setViewportMargins(width, 0, 0, 0)
        inside = self.contentsRect()
        self._numbers.setGeometry(inside.left(), inside.top(), width, inside.height())

    def _mark(self) -> None:
        marks = []
        for line in self.changed.lines:
            mark = QTextEdit.ExtraSelection()
            mark.format.setBackground(theme.color("tint"))
            mark.format.setProperty(QTextFormat.Property.FullWidthSelection, True)
            mark.cursor = QTextCursor(self.document().findBlockByNumber(line))
            marks.append(mark)
        self.setExtraSelections(marks)
        self.viewport().update()

    def _restyle(self) -> None:
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setStyleHint(QFont.StyleHint.Monospace)
        font.setPointSizeF(theme.font(SIZE).pointSizeF())
        self.setFont(font)
        self._make_room()
        palette = self.palette()
        palette.setColor(palette.ColorRole.Highlight, QColor(theme.colors.accent))
        palette.setColor(palette.ColorRole.HighlightedText, QColor(theme.colors.on_accent))
        self.setPalette(palette)
        self._colors.rehighlight()
        self._mark()
