"""The words on the right side: what is happening above, the lesson below. The lesson stays in sight however much is happening."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from gradstudio.gui.happening_panel import HappeningPanel
from gradstudio.gui.lesson_panel import LessonPanel

LESSON_SHARE = 0.45  # of the height, at the most, where not everything fits


class WordsPanel(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.happening, self.lesson = HappeningPanel(), LessonPanel()
        self._above, self._below = _scrolled(self.happening, "What is happening"), _scrolled(self.lesson, "The lesson")
        line = QFrame()
        line.setObjectName("rule")
        line.setFixedHeight(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._above)
        layout.addWidget(line)
        layout.addWidget(self._below, 1)

    def balance_soon(self) -> None:
        """Once Qt has laid new words out, for which it does not hold the interpreter lock: then their height is known."""
        QTimer.singleShot(1, self, self.balance)

    def balance(self) -> None:
        """Give what is happening the height that it needs, as far as the lesson can spare it."""
        height, spare = self._height(self._above), int(LESSON_SHARE * self.height())
        if height > self.height() - spare:  # else there is room for both; to lay texts out takes long
            height = min(height, self.height() - min(self._height(self._below), spare))
        height = max(height, 0)
        if height != self._above.height():
            self._above.setFixedHeight(height)

    def bring_into_view(self, part: QWidget) -> None:
        """Scroll to a part of what is happening, once it is laid out."""
        self.balance()
        QTimer.singleShot(0, self, lambda: self._above.ensureWidgetVisible(part, 0, 8))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.balance()

    def _height(self, area: QScrollArea) -> int:
        """That its words need, at the width that they have: for that one Qt knows the height of whatever did not change."""
        return area.widget().layout().totalHeightForWidth(self.width() - (area.width() - area.viewport().width()))


def _scrolled(panel: QWidget, name: str) -> QScrollArea:
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(panel)
    area.setAccessibleName(name)
    area.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    return area
