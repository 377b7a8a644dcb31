"""One metric of every layer over the steps, as a heatmap with a row for each layer. Why look: vanishing and exploding
gradients are patterns over depth."""

from __future__ import annotations

import math
import time

import numpy as np
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QPainterPath, QPen
from PySide6.QtWidgets import QComboBox, QGraphicsPathItem

from gradstudio.core.history import LAYER_METRICS, Layer
from gradstudio.core.text import number
from gradstudio.gui.drawing import axes
from gradstudio.gui.drawing.color_bar import ColorBar
from gradstudio.gui.drawing.heatmap_colors import indices, lookup_table
from gradstudio.gui.drawing.heatmap_image import Heatmap, LayerBins
from gradstudio.gui.drawing.series import log10
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.step_plot import FIT_EVERY, StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

NAMES = {
    "grad_norm": "gradient norm",
    "weight_norm": "weight norm",
    "update_ratio": "update / weight",
    "largest_grad": "largest gradient",
    "zero_share": "share of zeros",
    "nonfinite_share": "share of NaN and Inf",
}
UNITS = {
    "grad_norm": "L2 norm",
    "weight_norm": "L2 norm",
    "update_ratio": "ratio",
    "largest_grad": "|entry|",
    "zero_share": "share",
    "nonfinite_share": "share",
}
SHARES = {"zero_share", "nonfinite_share"}  # on a linear scale from 0 to 1


class LayersPlot(StepPlot):
    """The heatmap, its colour bar, and a choice of the metric."""

    title = "Layers × steps"
    right_width = 0  # the colour bar is there
    help = (
        "One row for each layer, from the input at the top to the output at the bottom. Dark rows at the top are a "
        "vanishing gradient."
    )

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        self.shown = "grad_norm"
        self._axis = axes.LayerAxis("left")
        super().__init__(steps, cursor, self._axis)
        self._layers: tuple[Layer, ...] = ()
        self._bins = LayerBins(0)
        self._levels = (0.0, 1.0)
        self._levels_due = 0.0  # when they are found again
        self._drawn: tuple = ()  # what is in the picture, and the bin up to which that stays
        self._row: int | None = None  # layer that the cursor reads
        self.image = Heatmap(self.canvas)
        self._lines = QGraphicsPathItem(self.canvas.data)
        self._lines.setZValue(2)
        self._lines_lie: tuple = ()  # number of layers, and last step, of the lines
        self._lit = QGraphicsPathItem(self.canvas.data)  # around the layers where the first NaN was born
        self._lit.setZValue(3)
        self._lit_of: tuple = ()
        self.box.invertY(True)
        self.widget.set_margins(top=10)  # half of the first name stands above its row
        self.plot.showGrid(y=False)
        self.bar = ColorBar()
        self.body.addWidget(self.bar)
        self._add_choice()
        self.restyle()

    @property
    def shown_metric(self) -> str:
        return self.shown

    def choose(self, metric: str) -> None:
        """Show another metric of the layers."""
        self.shown = metric
        if self.run is not None:
            run, self.run = self.run, None
            self.refresh(run, self.devicePixelRatioF())

    def clear(self) -> None:
        layers = self._layers = self.run.history.layers if self.run else ()
        self._bins = LayerBins(len(layers))
        self._levels = (0.0, 1.0)
        self._drawn, self._levels_due = (), 0.0
        self._axis.show_names(tuple(layer.name for layer in layers))
        self._has_moved()
        self.image.clear(len(layers))
        self.box.setYRange(0, max(len(layers), 1), padding=0)
        self.bar.show_levels(None, "", "")

    def refresh(self, run: Run, scale: float) -> None:
        super().refresh(run, scale)
        if (run, run.provenance) != self._lit_of:
            self._lit_of = (run, run.provenance)
            self._frame_provenance(run)

    def _frame_provenance(self, run: Run) -> None:
        """Draw a frame around the layers where the first NaN was born."""
        path, names = QPainterPath(), [layer.name for layer in run.history.layers]
        rows = [names.index(name) for name in (run.provenance.layers if run.provenance else ()) if name in names]
        if rows:
            path.addRect(-0.5, min(rows), len(run.history), max(rows) + 1 - min(rows))
        self._lit.setPath(path)

    def draw_anew(self, sharp: int) -> None:
        super().draw_anew(sharp)
        self.image.join(bool(sharp))

    def look_again(self) -> None:
        self._levels_due = 0.0

    def read(self, run: Run, start: int, stop: int) -> None:
        if run.history.layers is not self._layers:  # they are known only once the run has begun
            self.clear()
        self._bins.append(run.history.layer_metric(self.shown, start, stop))

    def _shows(self, run: Run, stop: int) -> bool:
        """Return whether a new column has begun: one may be wider than a pixel."""
        width = self._bins.width
        return super()._shows(run, stop) and (stop // width > self._seen // width or self._overdue(run))

    def draw(self, run: Run) -> None:
        layers = len(run.history.layers)
        if not self._bins.count or not layers:
            return
        window = self._close_look()
        bins = self._bins
        if window is not None:
            if self._drawn[:1] == (window,) and self._drawn[4] == theme.colors.bad:
                return
            bins = LayerBins(layers, start=window[0])
            bins.append(run.history.layer_metric(self.shown, *window))
        self._set_levels(bins)
        shown = (window, bins.width, self._levels, self.shown, theme.colors.bad)
        same = window is None and self._drawn[:5] == shown
        done = self._drawn[5] if same else 0
        if same and self._drawn[6] == bins.count:
            return
        self.image.put(done, indices(bins.picture(done), self._levels, linear=self.shown in SHARES).T, lookup_table())
        self.image.stretch(bins.start - 0.5, bins.width)
        self._drawn = (*shown, bins.count // bins.width, bins.count)
        self._draw_lines(layers)
        self.bar.show_levels(self._levels, NAMES[self.shown], UNITS[self.shown], linear=self.shown in SHARES)

    def restyle(self) -> None:
        self._lines.setPen(QPen(theme.color("plot"), 0))
        around = QPen(theme.color("bad"), 2)
        around.setCosmetic(True)
        self._lit.setPen(around)
        self.bar.setFixedWidth(round(axes.RIGHT_WIDTH * theme.zoom))
        self.bar.update()
        super().restyle()

    def legend(self) -> str:
        return "linear colour" if self.shown in SHARES else "log colour"

    def reading(self, run: Run, step: int) -> str:
        values = run.history.layer_metric(self.shown, step, step + 1)[0]
        if not len(values):
            return ""
        if self._row is not None and self._row < len(values):
            return f"{run.history.layers[self._row].name} {number(float(values[self._row]))}"
        return f"first {number(float(values[0]))} · last {number(float(values[-1]))}"

    def _close_look(self) -> tuple[int, int] | None:
        """Return the steps to read again, where the bins are too wide for the steps on view."""
        first, last = self.steps.first, self.steps.last
        if self._bins.width == 1 or (last - first) / self._bins.width > 400:
            return None
        return max(int(first) - 1, 0), min(int(last) + 2, self._bins.count)

    def _set_levels(self, bins: LayerBins) -> None:
        """Set the levels to whole decades that hold the finite values. A value far over nearly all others has the
        brightest colour."""
        now = time.monotonic()
        if self.shown in SHARES or (now < self._levels_due and bins is self._bins):
            return
        position = log10(bins.picture())
        self._levels_due = now + (FIT_EVERY if len(position) > 64 else 0)
        finite = position[np.isfinite(position)]
        if len(finite):
            index = int(0.98 * (len(finite) - 1))
            top = min(float(finite.max()), float(np.partition(finite, index)[index]) + 2)
            low = math.floor(finite.min())
            self._levels = (low, max(math.ceil(top), low + 1))

    def _draw_lines(self, layers: int) -> None:
        """Draw lines between the rows. They have the colour of the ground, so they are not seen after the last step."""
        if (layers, self.steps.most) != self._lines_lie:
            self._lines_lie = (layers, self.steps.most)
            path = QPainterPath()
            for row in range(1, layers if layers <= 12 else 0):
                path.moveTo(-0.5, row)
                path.lineTo(self.steps.most, row)
            self._lines.setPath(path)

    def _add_choice(self) -> None:
        self.choice = QComboBox()
        for metric, name in NAMES.items():
            self.choice.addItem(name, metric)
            self.choice.setItemData(self.choice.count() - 1, LAYER_METRICS[metric], Qt.ItemDataRole.ToolTipRole)
        self.choice.setObjectName("small")
        self.choice.setAccessibleName("Metric of the layers")
        self.choice.setToolTip("Choose the metric that the colours show.")
        self.choice.currentIndexChanged.connect(lambda: self.choose(self.choice.currentData()))
        self.header.addSpacing(8)
        self.header.addWidget(self.choice)

    def _key(self, key: int, last: int) -> bool:
        """Choose the layer that is read, with Up and Down, or do what the key does on every plot."""
        moves: dict[int, int] = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
        if key not in moves or not self._axis.names or self.run is None:
            return super()._key(key, last)
        self._row = (0 if self._row is None else self._row + moves[key]) % len(self._axis.names)
        self._say(self.run)
        return True

    def _mouse_moved(self, position: QPointF) -> None:
        self._row = (
            int(self.box.mapSceneToView(position).y()) if self.box.sceneBoundingRect().contains(position) else None
        )
        super()._mouse_moved(position)
        if self.run is not None and self.step_cursor.step is not None:
            self._say(self.run)
