"""A choice whose text has as many lines as it needs, unlike Qt's own."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QRadioButton, QSizePolicy


class Choice(QRadioButton):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.setAccessibleName(text)
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        row = QHBoxLayout(self)
        row.setContentsMargins(24, 1, 0, 1)
        label = QLabel(text, wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        label.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        row.addWidget(label)
        self._row = row

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._row.totalHeightForWidth(width)

    def sizeHint(self) -> QSize:
        return self._row.totalSizeHint()

    def hitButton(self, pos: QPoint) -> bool:
        return self.rect().contains(pos)
