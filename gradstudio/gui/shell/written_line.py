"""The last written file, at the foot of the window, where it covers nothing: its name, and a button that opens it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import in_row

STAY = 60_000  # ms
LONGEST, SHORTEST = 420, 90  # px of the words at normal text


class WrittenLine(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._text, self._file = "", Path()
        self._told: tuple = ()  # what was fitted last, and its room
        self.words, self.open, self.close_button = QLabel(), QPushButton("Open"), QPushButton("Close")
        self.setMinimumWidth(1)  # otherwise Qt widens the window for it, or cuts the figures beside it
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        for button in (self.open, self.close_button):
            button.setProperty("role", "small")
        self.open.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._file))))
        self.close_button.setAccessibleName("Close: what was written")
        self.close_button.setToolTip("Takes this line away; the file stays")
        self.close_button.clicked.connect(self.hide)
        self._leaving = QTimer(self, singleShot=True)
        self._leaving.timeout.connect(self.hide)
        in_row(self.words, self.open, self.close_button, of=self, margins=(12, 0, 8, 0), spacing=8)
        self.hide()

    @property
    def full_text(self) -> str:
        """Its whole text; empty if there is none."""
        return "" if self.isHidden() else self._text

    def say(self, text: str, file: Path, room: int) -> bool:
        """Show a text for a minute with a button that opens `file`, in this many pixels; return whether they
        suffice."""
        self._text, self._file = text, file
        self.words.setToolTip(text)
        self.words.setAccessibleName(text)
        self.open.setToolTip(f"Opens {file}")
        self.open.setAccessibleDescription(f"Opens {file}")
        self.show()
        self._leaving.start(STAY)
        return self.fit(room)

    def fit(self, room: int) -> bool:
        """Show it as fully as there is room for; hide it if there is none. Cheap while it is hidden."""
        if self.isHidden():
            return False
        told = (self._text, room, theme.zoom, theme.dark)
        if told != self._told:
            self._told = told
            self.words.setText("")
            left = room - self.sizeHint().width() - 8
            if left < SHORTEST * theme.zoom:
                self.hide()
                return False
            most = min(left, round(LONGEST * theme.zoom))
            self.words.setText(self.words.fontMetrics().elidedText(self._text, Qt.TextElideMode.ElideMiddle, most))
        return True
