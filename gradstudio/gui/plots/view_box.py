"""How the mouse moves a plot."""

from __future__ import annotations

from collections.abc import Callable

import pyqtgraph as pg
from PySide6.QtGui import QMouseEvent, QWheelEvent

from gradstudio.gui.plots.shared import StepRange


class StepViewBox(pg.ViewBox):
    """Wheel and drag move along the steps only; a double click shows the whole run again."""

    def __init__(self, steps: StepRange, whole: Callable[[], None]) -> None:
        super().__init__(enableMenu=False, defaultPadding=0)
        self._steps, self._whole = steps, whole
        self.setMouseEnabled(x=False, y=False)

    def wheelEvent(self, ev: QWheelEvent, axis: int | None = None) -> None:
        center = self.mapSceneToView(ev.scenePos()).x()
        factor = 0.85 ** (ev.delta() / 120)
        first, last = self._steps.first, self._steps.last
        self._steps.zoom(center - (center - first) * factor, center + (last - center) * factor)
        ev.accept()

    def mouseDragEvent(self, ev: QMouseEvent, axis: int | None = None) -> None:
        ev.accept()
        moved = self.mapSceneToView(ev.lastScenePos()).x() - self.mapSceneToView(ev.scenePos()).x()
        first, last = self._steps.first, self._steps.last
        shift = max(moved, -first)
        self._steps.zoom(first + shift, last + shift)

    def mouseDoubleClickEvent(self, ev: QMouseEvent) -> None:
        self._whole()
        ev.accept()
