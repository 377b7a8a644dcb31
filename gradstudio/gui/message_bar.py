"""One line above the plots for what a person must know now. It stays until it is closed or replaced; it never blocks."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLabel, QPushButton, QWidget


class MessageBar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("message")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.text = QLabel()
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.copy = QPushButton("Copy details")
        self.copy.clicked.connect(lambda: QApplication.clipboard().setText(self._details))
        close = QPushButton("Close")
        close.setAccessibleName("Close the message")
        close.clicked.connect(self.hide)
        self._details = ""
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 7, 10, 7)
        row.addWidget(self.text, 1)
        row.addWidget(self.copy)
        row.addWidget(close)
        self.hide()

    def show_error(self, text: str, details: str = "") -> None:
        self._show("bad", text, details)

    def show_news(self, text: str) -> None:
        self._show("good", text, "")

    def _show(self, tone: str, text: str, details: str) -> None:
        self.setProperty("tone", tone)
        self.style().unpolish(self)
        self.style().polish(self)
        self._details = details
        self.copy.setVisible(bool(details))
        self.text.setText(text)
        self.setAccessibleName(text)
        self.show()
