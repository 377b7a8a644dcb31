"""A search line; Escape clears it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QLineEdit


class SearchLine(QLineEdit):
    def __init__(self, name: str, about: str) -> None:
        super().__init__()
        self.setPlaceholderText(name)
        self.setAccessibleName(name)
        self.setToolTip(about)
        self.setMaxLength(200)
        self.setClearButtonEnabled(True)
        escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.clear)
        escape.setContext(Qt.ShortcutContext.WidgetShortcut)  # as an argument of the constructor it has no effect
