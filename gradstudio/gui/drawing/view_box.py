"""How the mouse moves a plot."""

from __future__ import annotations

from collections.abc import Callable

import pyqtgraph as pg
from pyqtgraph.GraphicsScene.mouseEvents import MouseClickEvent, MouseDragEvent
from PySide6.QtCore import QPointF, Qt, QTimer, Signal
from PySide6.QtWidgets import QGraphicsSceneMouseEvent, QGraphicsSceneWheelEvent

from gradstudio.gui.drawing.shared_cursor import StepRange

MOST_NOTCHES = 100  # in one zoom: far more than lie between one step and a million


class StepViewBox(pg.ViewBox):
    """A view box that wheel and drag move along the steps only. A double click shows the whole run again; a single one
    emits its position."""

    clicked = Signal(QPointF)  # in the scene

    def __init__(self, steps: StepRange, whole: Callable[[], None]) -> None:
        super().__init__(enableMenu=False, defaultPadding=0)
        self._steps, self._whole, self.places = steps, whole, steps.places
        # notches of the wheel that are still to be carried out, and their position
        self._turned, self._center = 0.0, 0.0
        self._wheel = QTimer(self)  # notches that come together are one zoom: each draws every plot
        self._wheel.setSingleShot(True)
        self._wheel.timeout.connect(self._zoom)
        self.setMouseEnabled(x=False, y=False)
        self.disableAutoRange()

    def set_range(self, x: tuple[float, float] | None = None, y: tuple[float, float] | None = None) -> None:
        """Set one or both ranges, each from minimum to maximum."""
        self.setRange(xRange=x, yRange=y, padding=0, disableAutoRange=False)  # it is off

    def step_at(self, place: QPointF) -> int:
        """Return the step nearest to a point of the scene."""
        return round(self.places.step_at(self.mapSceneToView(place).x()))

    def wheelEvent(self, ev: QGraphicsSceneWheelEvent, axis: int | None = None) -> None:
        self._turned += ev.delta() / 120
        self._center = self.mapSceneToView(ev.scenePos()).x()
        self._wheel.start(0)
        ev.accept()

    def _zoom(self) -> None:
        factor, center = 0.85 ** min(max(self._turned, -MOST_NOTCHES), MOST_NOTCHES), self._center
        self._turned = 0.0
        left, right = self._steps.left, self._steps.right
        self._steps.zoom(center - (center - left) * factor, center + (right - center) * factor)

    def mouseDragEvent(self, ev: MouseDragEvent, axis: int | None = None) -> None:
        ev.accept()
        moved = self.mapSceneToView(ev.lastScenePos()).x() - self.mapSceneToView(ev.scenePos()).x()
        left, right = self._steps.left, self._steps.right
        shift = max(moved, -left)
        self._steps.zoom(left + shift, right + shift)

    def mouseClickEvent(self, ev: MouseClickEvent) -> None:
        if ev.button() == Qt.MouseButton.LeftButton and not ev.double():
            ev.accept()
            self.clicked.emit(ev.scenePos())

    def mouseDoubleClickEvent(self, event: QGraphicsSceneMouseEvent) -> None:
        self._whole()
        event.accept()


class LookBox(StepViewBox):
    """The view box of the timeline: dragging it views a step."""

    dragged = Signal(object)  # the step, which may need more than 32 bits

    def mouseDragEvent(self, ev: MouseDragEvent, axis: int | None = None) -> None:
        if ev.button() != Qt.MouseButton.LeftButton:
            super().mouseDragEvent(ev, axis)
            return
        ev.accept()
        self.dragged.emit(self.step_at(ev.scenePos()))
