"""Controls that leave the mouse wheel to the panel around them, so that scrolling changes no value."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QComboBox, QSlider, QStyle, QStyleOptionSlider

SLIDER_STEPS = 1000


class Combo(QComboBox):
    def wheelEvent(self, e: QWheelEvent) -> None:
        e.ignore()


class Slider(QSlider):
    """Horizontal, with positions from 0 to `SLIDER_STEPS`. A click on its groove moves it to the mouse."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setRange(0, SLIDER_STEPS)

    def wheelEvent(self, e: QWheelEvent) -> None:
        e.ignore()

    def mousePressEvent(self, ev: QMouseEvent) -> None:
        if (
            ev.button() == Qt.MouseButton.LeftButton
            and (place := self._on_groove(ev.position().toPoint().x())) is not None
        ):
            self.setSliderDown(True)  # it is moved by the mouse, rather than by a key
            self.setSliderPosition(place)  # the handle is under the mouse then, and a drag continues from there
        super().mousePressEvent(ev)

    def _on_groove(self, x: int) -> int | None:
        """Return the position of the slider for a mouse beside the handle; None for one over it."""
        option = QStyleOptionSlider()
        self.initStyleOption(option)
        part = QStyle.SubControl
        groove, handle = (
            self.style().subControlRect(QStyle.ComplexControl.CC_Slider, option, each, self)
            for each in (part.SC_SliderGroove, part.SC_SliderHandle)
        )
        if handle.left() <= x <= handle.right():
            return None
        room = groove.width() - handle.width()
        return QStyle.sliderValueFromPosition(0, SLIDER_STEPS, x - groove.left() - handle.width() // 2, room)
