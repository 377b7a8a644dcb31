"""One metric of every layer over the steps, as a heatmap with a row for each layer. Why look: vanishing and exploding
gradients are patterns over depth."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QPainterPath, QPen, QStandardItemModel
from PySide6.QtWidgets import QGraphicsPathItem, QListView, QWidget

from gradstudio.core.columns import DERIVED_METRICS, LAYER_METRICS
from gradstudio.core.files import Content
from gradstudio.core.row import Layer
from gradstudio.core.text import number
from gradstudio.core.time_steps import TimeMap
from gradstudio.core.unknown import is_known
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots import time_map
from gradstudio.gui.plots.heatmap_plot import HeatmapPlot
from gradstudio.gui.plots.time_map import TimeMapRows
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

NAMES = {
    "grad_norm": "gradient norm",
    "weight_norm": "weight norm",
    "update_ratio": "update / weight",
    "grad_ratio": "gradient / weight",
    "largest_grad": "largest gradient",
    "grad_mean": "|mean of gradient|",
    "grad_std": "std of gradient",
    "zero_share": "share of zeros",
    "nonfinite_share": "share of NaN and Inf",
    "cut_share": "share cut by value",
}
UNITS = {
    "grad_norm": "L2 norm",
    "weight_norm": "L2 norm",
    "update_ratio": "ratio",
    "grad_ratio": "ratio",
    "largest_grad": "|entry|",
    "grad_mean": "|mean|",
    "grad_std": "std",
    "zero_share": "share",
    "nonfinite_share": "share",
    "cut_share": "share",
}


class LayersPlot(HeatmapPlot):
    """The heatmap, with a frame around the layers in which the first NaN was born."""

    title = "Layers × steps"
    help = (
        "One row for each layer, from the input at the top to the output at the bottom. Dark rows at the top are a "
        "vanishing gradient. Click a row, or press Enter, to open the page of that layer."
    )
    names, units = NAMES | {time_map.KEY: time_map.NAME}, UNITS | {time_map.KEY: time_map.UNIT}
    meanings = LAYER_METRICS | DERIVED_METRICS | {time_map.KEY: time_map.MEANING}
    shares: ClassVar[frozenset[str]] = frozenset(("zero_share", "nonfinite_share", "cut_share"))
    choice_name = "Metric of the layers"
    frames_birth = True  # whether it shows where the first NaN was born

    layer_asked = Signal(int)  # whose page is to be opened: its index in forward order

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor)
        self.time_map = TimeMapRows()
        self._layers: tuple[Layer, ...] = ()
        self._layer_names: tuple[str, ...] = ()
        self._lit = QGraphicsPathItem(self.canvas.data)  # around the layers in which the first NaN was born
        self._lit.setZValue(3)
        self._lit_of: tuple = ()
        self.box.clicked.connect(self._on_click)
        self.restyle()

    @property
    def shown_metric(self) -> str:
        return "" if self.along_time else self.shown

    @property
    def along_time(self) -> bool:
        """Whether its rows are the time steps of a sequence."""
        return self.shown == time_map.KEY

    def offer_time_map(self, possible: bool) -> None:
        """Let the time steps be chosen, or not."""
        model, view, row = self.choice.model(), self.choice.view(), list(self.names).index(time_map.KEY)
        assert isinstance(model, QStandardItemModel) and isinstance(view, QListView)
        if view.isRowHidden(row) == possible:
            view.setRowHidden(row, not possible)
            model.item(row).setEnabled(possible)  # as keys would choose a hidden one

    def show_time_map(self, new: TimeMap | None, note: str = time_map.WAITS) -> None:
        """Show another map of the visible run; None with the reason why there is none."""
        before, self.time_map = self.time_map, TimeMapRows(new, note)
        if self.along_time and new is not before.map:
            self.choose(self.shown)
        elif self.along_time and note != before.note and self.run is not None:
            self._say(self.run)

    def own_data(self) -> Content | None:
        return self.time_map.data() if self.along_time else None

    def legend(self) -> str:
        return self.time_map.note if self.along_time and self.time_map.map is None else super().legend()

    @property
    def is_framed(self) -> bool:
        """Whether the layers in which the first NaN was born are framed."""
        return not self._lit.path().isEmpty()

    def give_head(self) -> QWidget:
        """Return the head without its title, for a card around the plot, which has its own title."""
        self.setObjectName("")
        column = self.layout()
        assert column is not None
        column.removeItem(self.header)
        self.header.setParent(None)
        self.header.setContentsMargins(0, 0, 0, 0)
        self.title_label.hide()
        head = QWidget()
        head.setLayout(self.header)
        return head

    def row_names(self, run: Run) -> tuple[str, ...]:
        if self.along_time:
            return self.time_map.names
        if run.history.layers is not self._layers:
            self._layers, self._layer_names = run.history.layers, tuple(layer.name for layer in run.history.layers)
        return self._layer_names

    def values(self, run: Run, metric: str, start: int, stop: int) -> np.ndarray:
        if self.along_time:
            return self.time_map.values(start, stop)
        values = run.history.layer_metric(metric, start, stop)
        return np.abs(values) if metric == "grad_mean" else values

    def refresh(self, run: Run, scale: float) -> None:
        super().refresh(run, scale)
        if (run, run.provenance, self.along_time) != self._lit_of:
            self._lit_of = (run, run.provenance, self.along_time)
            self._frame_provenance(run)

    def _frame_provenance(self, run: Run) -> None:
        """Draw a frame around the layers in which the first NaN was born."""
        path, names = QPainterPath(), [layer.name for layer in run.history.layers]
        born_in = run.provenance.layers if run.provenance and self.frames_birth and not self.along_time else ()
        rows = [names.index(name) for name in born_in if name in names]
        if rows:
            left, right = (self.steps.places.of(step - 0.5) for step in (0, len(run.history)))
            path.addRect(left, min(rows), right - left, max(rows) + 1 - min(rows))
        self._lit.setPath(path)

    def _on_click(self, place: QPointF) -> None:
        row = math.floor(self.box.mapSceneToView(place).y())
        if 0 <= row < len(self._axis.names) and not self.along_time:
            self.layer_asked.emit(row)

    def _key(self, key: int, last: int) -> bool:
        """Open the page of the current layer, by default the first, or handle the key like every plot."""
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._axis.names and not self.along_time:
            self.layer_asked.emit(min(self._row or 0, len(self._axis.names) - 1))
            return True
        return super()._key(key, last)

    def restyle(self) -> None:
        around = QPen(theme.color("bad"), 2)
        around.setCosmetic(True)
        self._lit.setPen(around)
        super().restyle()

    def reading(self, run: Run, step: int) -> str:
        if self.along_time:
            return self.time_map.reading(step, self._row)
        values = run.history.layer_metric(self.shown, step, step + 1)[0]
        if not len(values):
            return ""
        if self._row is not None and self._row < len(values):
            return f"{run.history.layers[self._row].name} {_in_words(values[self._row])}"
        return f"first {_in_words(values[0])} · last {_in_words(values[-1])}"


def _in_words(value: np.floating) -> str:
    return number(float(value)) if is_known(float(value)) else "not measured"
