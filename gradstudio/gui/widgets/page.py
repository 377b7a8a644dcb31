"""A page of the right column that works only while it is visible."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QWidget


class Page(QWidget):
    seen_changed = Signal()  # it is shown or hidden

    @property
    def in_sight(self) -> bool:
        """Whether the page is visible."""
        return self.isVisible() and not self.window().isMinimized()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.seen_changed.emit()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.seen_changed.emit()
