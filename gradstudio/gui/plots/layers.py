"""Layers x steps as a picture, one row a layer from input to output. Why look: vanishing and exploding are patterns over depth."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, Qt
from PySide6.QtWidgets import QComboBox, QHBoxLayout

from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.text import number
from gradstudio.gui.plots import axes
from gradstudio.gui.plots.color_bar import NONFINITE as NONFINITE_COLOR
from gradstudio.gui.plots.color_bar import TOP as TOP_COLOR
from gradstudio.gui.plots.color_bar import ColorBar, lookup_table
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run

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


class LayerBins:
    """One metric of every layer, the largest of each bin of steps; a bin with a NaN or Inf in it is remembered as such."""

    def __init__(self, layers: int, capacity: int = 1024, start: int = 0) -> None:
        self.start, self.width, self.count = start, 1, 0
        self._capacity = capacity
        self._values = np.full((capacity, layers), np.nan, np.float32)
        self._nonfinite = np.zeros((capacity, layers), bool)

    def append(self, values: np.ndarray) -> None:
        """Take in the next steps, (n, layers)."""
        while self.count + len(values) > self._capacity * self.width:
            half = self._capacity // 2
            self._values[:half], self._values[half:] = np.fmax(self._values[0::2], self._values[1::2]), np.nan
            self._nonfinite[:half], self._nonfinite[half:] = self._nonfinite[0::2] | self._nonfinite[1::2], False
            self.width *= 2
        if not len(values):
            return
        bins = (self.count + np.arange(len(values))) // self.width
        starts = np.flatnonzero(np.diff(bins, prepend=-1))
        bad = ~np.isfinite(values)
        finite = np.where(bad, np.nan, values)
        self._values[bins[starts]] = np.fmax(self._values[bins[starts]], np.fmax.reduceat(finite, starts))
        self._nonfinite[bins[starts]] |= np.logical_or.reduceat(bad, starts)
        self.count += len(values)

    def picture(self) -> tuple[np.ndarray, np.ndarray]:
        """Values and non-finite flags, (bins, layers)."""
        used = -(-self.count // self.width)
        return self._values[:used], self._nonfinite[:used]


class LayersPlot(StepPlot):
    title = "Layers × steps"
    right_width = 0  # its place is the colour bar's
    help = "One row a layer, from the input at the top to the output at the bottom. A dark top is a vanishing gradient."

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        self.shown = "grad_norm"
        self._axis = axes.LayerAxis("left")
        super().__init__(steps, cursor, self._axis)
        self._bins = LayerBins(0)
        self._levels = (0.0, 1.0)
        self._row: int | None = None
        self.image = pg.ImageItem(axisOrder="row-major")
        self.image.setZValue(1)
        self.plot.addItem(self.image, ignoreBounds=True)
        self._lines = pg.PlotCurveItem(connect="pairs")
        self._lines.setZValue(2)
        self._lines.hide()  # drawing pairs of nothing crashes
        self.plot.addItem(self._lines, ignoreBounds=True)
        self.box.invertY(True)
        self.plot.layout.setContentsMargins(0, 10, 0, 0)  # room for the half of the first name above its row
        self.plot.showGrid(y=False)
        self.bar = ColorBar()
        self._add_bar()
        self._add_choice()
        self.restyle()

    def choose(self, metric: str) -> None:
        """Show another metric of the layers."""
        self.shown = metric
        if self.run is not None:
            run, self.run = self.run, None
            self.refresh(run)

    def clear(self) -> None:
        layers = self.run.history.layers if self.run else ()
        self._bins = LayerBins(len(layers))
        self._levels = (0.0, 1.0)
        self._axis.show_names(tuple(layer.name for layer in layers))
        self.image.clear()
        self.bar.show_levels(None, "", "")

    def read(self, run: Run, start: int, stop: int) -> None:
        if self._axis.names != tuple(layer.name for layer in run.history.layers):
            self.clear()
        self._bins.append(run.history.layer_metric(self.shown, start, stop))

    def draw(self, run: Run) -> None:
        if not self._bins.count:
            return
        bins = self._close_look(run) or self._bins
        values, bad = bins.picture()
        position = values if self.shown in SHARES else _log10(values)
        self._set_levels(position)
        low, high = self._levels
        index = (position - low) * (TOP_COLOR / max(high - low, 1e-9))
        index = np.where(np.isnan(index), 0, np.clip(index, 0, TOP_COLOR)).astype(np.uint8)
        index[bad] = NONFINITE_COLOR
        layers = len(run.history.layers)
        self.image.setImage(index.T, autoLevels=False, levels=(0, 255), lut=lookup_table())
        self.image.setRect(bins.start - 0.5, 0, len(index) * bins.width, layers)
        self.box.setYRange(0, layers, padding=0)
        self._draw_lines(layers, bins.start + bins.count)
        self.bar.show_levels(self._levels, NAMES[self.shown], UNITS[self.shown], linear=self.shown in SHARES)

    def restyle(self) -> None:
        self._lines.setPen(pg.mkPen(theme.color("plot"), width=1))
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
            return f"{self._axis.names[self._row]} {number(float(values[self._row]))}"
        return f"first {number(float(values[0]))} · last {number(float(values[-1]))}"

    def _close_look(self, run: Run) -> LayerBins | None:
        first, last = self.steps.first, self.steps.last
        if self._bins.width == 1 or (last - first) / self._bins.width > 400:
            return None
        start, stop = max(int(first) - 1, 0), min(int(last) + 2, self._bins.count)
        close = LayerBins(len(run.history.layers), start=start)
        close.append(run.history.layer_metric(self.shown, start, stop))
        return close

    def _set_levels(self, position: np.ndarray) -> None:
        """Whole decades that hold what is finite. What stands far over nearly all of it has the brightest colour with it."""
        if self.shown in SHARES:
            return
        finite = position[np.isfinite(position)]
        if len(finite):
            top = min(float(finite.max()), float(np.quantile(finite, 0.98)) + 2)
            low = math.floor(finite.min())
            self._levels = (low, max(math.ceil(top), low + 1))

    def _draw_lines(self, layers: int, last: float) -> None:
        rows = np.arange(1, layers, dtype=float) if layers <= 12 else np.empty(0)
        self._lines.setVisible(bool(len(rows)))
        self._lines.setData(np.tile([-0.5, last], len(rows)), np.repeat(rows, 2))

    def _add_bar(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(0)
        self.layout().removeWidget(self.widget)
        row.addWidget(self.widget, 1)
        row.addWidget(self.bar)
        self.layout().addLayout(row, 1)

    def _add_choice(self) -> None:
        self.choice = QComboBox()
        for metric, name in NAMES.items():
            self.choice.addItem(name, metric)
            self.choice.setItemData(self.choice.count() - 1, LAYER_METRICS[metric], Qt.ItemDataRole.ToolTipRole)
        self.choice.setObjectName("small")
        self.choice.setAccessibleName("Metric of the layers")
        self.choice.setToolTip("What the colour shows.")
        self.choice.currentIndexChanged.connect(lambda: self.choose(self.choice.currentData()))
        self.header.addSpacing(8)
        self.header.addWidget(self.choice)

    def _key(self, key: int) -> bool:
        """Up and Down choose the layer that is read."""
        move = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(key)
        if move is None or not self._axis.names:
            return super()._key(key)
        self._row = (0 if self._row is None else self._row + move) % len(self._axis.names)
        self._say(self.run)
        return True

    def _mouse_moved(self, position: QPointF) -> None:
        self._row = int(self.box.mapSceneToView(position).y()) if self.box.sceneBoundingRect().contains(position) else None
        super()._mouse_moved(position)
        if self.run is not None and self.step_cursor.step is not None:
            self._say(self.run)


def _log10(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(values)
