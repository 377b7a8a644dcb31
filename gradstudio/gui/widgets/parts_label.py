"""A label of several parts in one line; those at the end are left out if there is no room for them."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel

BETWEEN = " · "


class PartsLabel(QLabel):
    """Uses the given room. `parts` is its whole content, the most important one first."""

    def __init__(self, *parts: str) -> None:
        super().__init__()
        self.parts = parts
        self.setTextFormat(Qt.TextFormat.PlainText)
        self._fit()

    def say(self, parts: Sequence[str]) -> None:
        if tuple(parts) != self.parts:
            self.parts = tuple(parts)
            self._fit()

    def minimumSizeHint(self) -> QSize:
        return QSize(1, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        counts = range(len(self.parts), 0, -1)
        texts = [BETWEEN.join(self.parts[:count]) for count in counts] or [""]
        measured = self.fontMetrics()
        text = next((each for each in texts if measured.horizontalAdvance(each) <= self.width()), texts[-1])
        if text != self.text():
            self.setText(text)
            self.setAccessibleName(BETWEEN.join(self.parts))
