"""What a person must know now, laid over the top of the plots so that nothing moves. It never blocks.

News leave by themselves, errors stay until they are closed (by the button or Escape) or replaced.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QRect, Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

NEWS_STAY = 8000  # ms


class MessageBar(QFrame):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("message")
        self.text = QLabel()
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.copy = QPushButton("Copy details")
        self.copy.clicked.connect(lambda: QApplication.clipboard().setText(self._details))
        self.open = QPushButton("Open")
        self.open.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._file))))
        close = QPushButton("Close")
        close.setAccessibleName("Close the message")
        close.clicked.connect(self.hide)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.hide)
        self._details = ""
        self._file = Path()
        self._leaving = QTimer(self)
        self._leaving.setSingleShot(True)
        self._leaving.timeout.connect(self.hide)
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 7, 10, 7)
        row.addWidget(self.text, 1)
        for button in (self.copy, self.open, close):
            row.addWidget(button)
        self.hide()

    def show_error(self, text: str, details: str = "") -> None:
        self._show("bad", text, details, Path())

    def show_news(self, text: str, file: Path | None = None) -> None:
        """Something went well; `file` can be opened from here."""
        self._show("good", text, "", file or Path())
        self._leaving.start(NEWS_STAY)

    def lie_over(self, place: QRect) -> None:
        """Take the width of `place`, at its top."""
        width = place.width() - 24
        self.setGeometry(place.x() + 12, place.y() + 10, width, self.layout().totalHeightForWidth(width))
        self.raise_()

    def _show(self, tone: str, text: str, details: str, file: Path) -> None:
        self._leaving.stop()
        self.setProperty("tone", tone)
        self.style().unpolish(self)
        self.style().polish(self)
        self._details, self._file = details, file
        self.copy.setVisible(bool(details))
        self.open.setVisible(file != Path())
        self.text.setText(text)
        self.setAccessibleName(text)
        self.show()
        self.window().place_message()
