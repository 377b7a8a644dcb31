"""How a frame is kept cheap.

pyqtgraph paints in Python and holds the interpreter lock from the first item of a frame to the last, including the time
that Qt itself takes: the training thread waits. So pyqtgraph handles only the ranges, the ticks, the mouse and the
layout, and Qt paints items of its own, without delaying the training thread:

- no Python runs while a plot is painted (this file, and the items of canvas.py);
- a curve of any length has at most a few thousand points (envelope.py), in parts of which only the last changes
  (curve.py);
- the heatmap is painted from the memory that its new columns are written to (heatmap_image.py);
- axes and overlaid curves are pictures that are redrawn only when they change (axes.py, overlay_curves.py);
- the network is drawn five times a second, and of it only the gradients again (gui/plots/network_picture.py);
- a plot is drawn only when its new rows are a pixel wide (gui/plots/step_plot.py)."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import Signal, SignalInstance
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGraphicsItem, QGraphicsLayout, QGraphicsScene, QGraphicsView, QGraphicsWidget

from gradstudio.gui.drawing import pyqtgraph_internals

_Flag = QGraphicsItem.GraphicsItemFlag


class PlotView(pg.PlotWidget):
    """pyqtgraph's view, painted without it."""

    resized = Signal()
    # pyqtgraph's own is Python, and would hold the interpreter lock until everything is painted
    paintEvent = QGraphicsView.paintEvent  # pyright: ignore[reportAssignmentType]

    def __init__(self, box: pg.ViewBox, axes: dict[str, pg.AxisItem]) -> None:
        super().__init__(viewBox=box, axisItems=axes)
        self.scene().setItemIndexMethod(QGraphicsScene.ItemIndexMethod.NoIndex)
        for item in (self.plot, box):
            leave_unpainted(item)
        pyqtgraph_internals.cut_relays(self)
        self.plot.getAxis("top").unlinkFromView()  # it is never shown

    @property
    def plot(self) -> pg.PlotItem:
        plot = self.getPlotItem()
        assert plot is not None
        return plot

    @property
    def mouse_moved(self) -> SignalInstance:
        """Signal of the mouse position, in the scene."""
        scene = self.scene()
        assert isinstance(scene, pg.GraphicsScene)
        return scene.sigMouseMoved

    def resizeEvent(self, ev: QResizeEvent | None) -> None:
        super().resizeEvent(ev)
        if self.getPlotItem() is None:  # pyqtgraph calls this during construction
            return
        grid_of(self.plot).activate()  # now and not after the next paint
        self.resized.emit()


def grid_of(plot: pg.PlotItem) -> QGraphicsLayout:
    """Return the layout of a plot: `plot.layout` is the layout itself in pyqtgraph, and a method in Qt."""
    return QGraphicsWidget.layout(plot)


def leave_unpainted(item: QGraphicsItem, unpainted: bool = True) -> None:
    """Have Qt skip an item without calling its Python code. Its children are painted, and the mouse still finds it."""
    item.setFlag(_Flag.ItemHasNoContents, unpainted)
    item.setFlag(_Flag.ItemClipsChildrenToShape, False)
