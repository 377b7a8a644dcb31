"""Controls that leave the mouse wheel to the panel that they stand in, so that scrolling changes no value."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QComboBox, QSlider

SLIDER_STEPS = 1000


class Combo(QComboBox):
    def wheelEvent(self, e: QWheelEvent) -> None:
        e.ignore()


class Slider(QSlider):
    """Horizontal, with positions from 0 to `SLIDER_STEPS`."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setRange(0, SLIDER_STEPS)

    def wheelEvent(self, e: QWheelEvent) -> None:
        e.ignore()
