"""A note rendered as Markdown. It loads nothing: an image is its name, raw HTML is its text; a link is only
reported."""

from __future__ import annotations

import re

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import (
    QDesktopServices,
    QFont,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QTextBrowser

FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
LONGEST_WORD = 200  # letters: wrapping a longer one takes Qt seconds
IMAGE = re.compile(r"!+\[")  # possible beginnings of one, however it goes on
WEB = ("http", "https")


class NoteView(QTextBrowser):
    """Shows a note. A click, Enter or F2 requests editing; a click on a link requests opening it."""

    edit_asked = Signal()
    link_asked = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("note")
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setTabChangesFocus(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Note on the chosen run")
        self.setToolTip("What was written about this run, as Markdown. Click it, or press Enter, to edit it")
        self.anchorClicked.connect(self._on_click)

    def show_note(self, note: str) -> None:
        """Show a note that is Markdown."""
        text = re.sub(rf"\S{{{LONGEST_WORD}}}", r"\g<0> ", note)
        self.document().setMarkdown(IMAGE.sub("[image: ", text), FEATURES)
        self._fit_letters()
        self.moveCursor(QTextCursor.MoveOperation.Start)  # or the view shows the end of a long note
        self.setAccessibleDescription(f"{self.toPlainText()} Press Enter to edit it.")

    def _fit_letters(self) -> None:
        """Render headings in the size of the other text, as there is room for three lines, and no letter bolder than
        the program's font."""
        plain, strong = QTextCharFormat(), QTextCharFormat()
        plain.setProperty(QTextFormat.Property.FontSizeAdjustment, 0)
        strong.setFontWeight(QFont.Weight.DemiBold)
        cursor, block = QTextCursor(self.document()), self.document().begin()
        while block.isValid():
            heading = bool(block.blockFormat().headingLevel())
            parts = [(each.start, each.length, each.format.fontWeight()) for each in block.textFormats()]
            for start, length, weight in parts:
                cursor.setPosition(block.position() + start)
                cursor.setPosition(block.position() + start + length, QTextCursor.MoveMode.KeepAnchor)
                if heading:
                    cursor.mergeCharFormat(plain)
                if heading or weight > QFont.Weight.DemiBold:
                    cursor.mergeCharFormat(strong)
            block = block.next()

    def loadResource(self, type: int, name: QUrl | str) -> QImage:
        """Load nothing, neither from a file nor from anywhere else. Qt opens the file itself if it is given nothing."""
        nothing = QImage(1, 1, QImage.Format.Format_ARGB32)
        nothing.fill(Qt.GlobalColor.transparent)
        return nothing

    def mouseReleaseEvent(self, ev: QMouseEvent) -> None:
        super().mouseReleaseEvent(ev)
        on_link = bool(self.anchorAt(ev.position().toPoint()))
        if ev.button() == Qt.MouseButton.LeftButton and not on_link and not self.textCursor().hasSelection():
            self.edit_asked.emit()

    def keyPressEvent(self, ev: QKeyEvent) -> None:
        if ev.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_F2) and not self.textCursor().hasSelection():
            self.edit_asked.emit()
        else:
            super().keyPressEvent(ev)

    def _on_click(self, link: QUrl) -> None:
        if link.scheme() in WEB:
            self.link_asked.emit(link.toString())


def follow(link: str) -> None:
    """Open a link in the web browser, with the user's consent."""
    QDesktopServices.openUrl(QUrl(link))
