"""The common part of heatmap plots: a metric of each layer or each rank over the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QPainterPath, QPen
from PySide6.QtWidgets import QComboBox, QGraphicsPathItem

from gradstudio.gui.drawing import axes
from gradstudio.gui.drawing.color_bar import ColorBar
from gradstudio.gui.drawing.heatmap_colors import NOTHING, ZERO, indices, lookup_table
from gradstudio.gui.drawing.heatmap_image import Heatmap, LayerBins
from gradstudio.gui.drawing.row_groups import groups
from gradstudio.gui.drawing.series import log10
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.time_bins import TimeBins
from gradstudio.gui.plots.step_plot import FIT_EVERY, StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

FEW = 12  # number of rows up to which there is a line between every two
MOST_GROUPS = 14  # number of modules up to which there is a line between every two


class HeatmapPlot(StepPlot):
    """The heatmap, its colour bar, and a choice of the metric. Subclasses name their metrics and rows, and read the
    values of a metric in `values`. Values are never below 0."""

    right_width = 0  # the colour bar is there
    pixelated = invites = True
    names: ClassVar[Mapping[str, str]] = {}  # of the metrics; the first is the initial one
    units: ClassVar[Mapping[str, str]] = {}
    shares: ClassVar[frozenset[str]] = frozenset()  # metrics on a linear scale from 0 to 1
    meanings: ClassVar[Mapping[str, str]] = {}  # of the metrics, for their tooltips
    choice_name = ""
    finely = False  # whether the colours distinguish values within one decade

    def row_names(self, run: Run) -> tuple[str, ...]:
        """Return a name for each row."""
        raise NotImplementedError

    def values(self, run: Run, metric: str, start: int, stop: int) -> np.ndarray:
        """Return a metric at steps start to stop, float32 (steps, rows)."""
        raise NotImplementedError

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        self.shown = next(iter(self.names))
        self._axis = axes.LayerAxis("left")
        super().__init__(steps, cursor, self._axis)
        self._rows: tuple[str, ...] = ()
        self._bins: LayerBins | TimeBins = LayerBins(0)
        self._levels = (0.0, 1.0)
        self._levels_due = 0.0  # when they are searched next
        self._drawn: tuple = ()  # the content of the picture, and the bin up to which that stays
        self._has_zero = False  # whether a cell is exactly 0
        self._is_measured = True  # whether any cell is known
        self._row: int | None = None  # row that the cursor reads
        self.image = Heatmap(self.canvas)
        self._lines = QGraphicsPathItem(self.canvas.data)
        self._lines.setZValue(2)
        self._lines_lie: tuple = ()  # names of the rows, and last step, at the lines
        self.box.invertY(True)
        self.widget.above = 10  # half of the first name is above its row
        self.plot.showGrid(y=False)
        self.bar = ColorBar()
        self.body.addWidget(self.bar)

    def choose(self, metric: str) -> None:
        """Show another metric."""
        self.shown = metric
        if self.run is not None:
            run, self.run = self.run, None
            self.refresh(run, self.devicePixelRatioF())

    def clear(self) -> None:
        rows = self._rows = self.row_names(self.run) if self.run else ()
        self._bins = self._empty_bins(len(rows), 0)
        self._levels = (0.0, 1.0)
        self._drawn, self._levels_due, self._is_measured = (), 0.0, True
        self._axis.show_names(rows)
        self._has_moved()
        self.image.clear(len(rows))
        self.box.setYRange(0, max(len(rows), 1), padding=0)
        self.bar.show_levels(None, "", "")

    def draw_as_vectors(self, sharp: int) -> None:
        super().draw_as_vectors(sharp)
        self.image.join(bool(sharp))

    def look_again(self) -> None:
        self._levels_due = 0.0

    def read(self, run: Run, start: int, stop: int) -> None:
        if self._rows != self.row_names(run):
            self.clear()  # they are known only once the run has begun
        self._fill(self._bins, run, start, stop)

    def _shows(self, run: Run, stop: int) -> bool:
        """Return whether a new column has begun: one may be wider than a pixel."""
        places, width = self.steps.places, self._bins.width
        begun = places.of(float(stop)) // width > places.of(float(self._seen)) // width
        return super()._shows(run, stop) and (begun or self._overdue(run))

    def draw(self, run: Run) -> None:
        if not self._bins.count or not self._rows:
            return
        window = self._close_look()
        bins = self._bins
        if window is not None:
            if self._drawn[:1] == (window,) and self._drawn[4] == theme.colors.bad:
                return
            bins = self._empty_bins(len(self._rows), window[0])
            self._fill(bins, run, *window)
        self._set_levels(bins)
        shown = (window, bins.width, self._levels, self.shown, theme.colors.bad)
        same = window is None and self._drawn[:5] == shown
        done = self._drawn[5] if same else 0
        if same and self._drawn[6] == bins.count:
            return
        linear = self.shown in self.shares
        index = indices(bins.picture(done), self._levels, linear=linear).T
        self.image.put(done, index, lookup_table())
        self._has_zero = (same and self._has_zero) or bool((index == ZERO).any())
        self._is_measured = (same and self._is_measured) or bool((index != NOTHING).any())
        self.image.stretch(bins.left_edge, bins.width)
        self._drawn = (*shown, bins.done, bins.count)
        self._draw_lines(len(self._rows))
        name, unit = self.names[self.shown], self.units[self.shown]
        self.bar.show_levels(
            self._levels if self._is_measured else None, name, unit, linear=linear, zero=self._has_zero
        )

    def restyle(self) -> None:
        self._lines.setPen(QPen(theme.color("plot"), 0))
        self.bar.setFixedWidth(round(axes.RIGHT_WIDTH * theme.zoom))
        self.bar.update()
        super().restyle()

    def legend(self) -> str:
        if not self._is_measured:
            return "not measured in this run"
        return "linear colour" if self.shown in self.shares else "log colour"

    def _close_look(self) -> tuple[int, int] | None:
        """Return the steps to reread, if the bins are too wide for the visible steps."""
        steps, width = self.steps, self._bins.width
        if width <= steps.places.pace or (steps.right - steps.left) / width > 400:
            return None
        return max(int(steps.first) - 1, 0), min(int(steps.last) + 2, self._bins.count)

    def _empty_bins(self, rows: int, start: int) -> LayerBins | TimeBins:
        """Return bins of the kind that the x axis needs, from a step on."""
        places = self.steps.places
        if places.timed:
            return TimeBins(rows, start=places.of(float(start)))
        return LayerBins(rows, start=start)

    def _fill(self, bins: LayerBins | TimeBins, run: Run, start: int, stop: int) -> None:
        """Put the rows start to stop of the visible metric into bins."""
        values = self.values(run, self.shown, start, stop)
        if isinstance(bins, TimeBins):
            bins.append(values, self.steps.places.of(np.arange(start, start + len(values) + 1, dtype=float)))
        else:
            bins.append(values)

    def _set_levels(self, bins: LayerBins | TimeBins) -> None:
        """Set the levels to whole decades, or to 1, 2 and 5 in them, that contain the finite values. A value far above
        nearly all others has the brightest colour."""
        now = time.monotonic()
        if self.shown in self.shares or (now < self._levels_due and bins is self._bins):
            return
        position = log10(bins.picture())
        self._levels_due = now + (FIT_EVERY if len(position) > 64 else 0)
        finite = position[np.isfinite(position)]
        if len(finite):
            index = int(0.98 * (len(finite) - 1))
            top = min(float(finite.max()), float(np.partition(finite, index)[index]) + 2)
            low = math.floor(finite.min())
            whole = (low, max(math.ceil(top), low + 1))
            self._levels = _closer(float(finite.min()), top) if self.finely else whole

    def _draw_lines(self, rows: int) -> None:
        """Draw lines between the rows, or between modules if there are many rows. They have the colour of the
        background, so they are invisible after the last step."""
        end = 2.0 ** math.ceil(math.log2(self.steps.places.of(self.steps.most)))  # which moves seldom
        if (self._rows, end) != self._lines_lie:
            self._lines_lie = (self._rows, end)
            path = QPainterPath()
            few = rows <= FEW
            for row in range(1, rows) if few else [group.first for group in groups(self._rows, MOST_GROUPS)[1:]]:
                path.moveTo(-0.5, row)
                path.lineTo(end, row)
            self._lines.setPath(path)

    def _lay_out(self) -> None:
        self._add_choice()  # first, as Tab reaches the upper ones first
        super()._lay_out()

    def _add_choice(self) -> None:
        self.choice = QComboBox()
        for metric, name in self.names.items():
            self.choice.addItem(name, metric)
            self.choice.setItemData(self.choice.count() - 1, self.meanings[metric], Qt.ItemDataRole.ToolTipRole)
        self.choice.setObjectName("small")
        self.choice.setAccessibleName(self.choice_name)
        self.choice.setToolTip("Choose the metric that the colours show.")
        # On Linux the accessible name of a combo box is its current choice.
        self.choice.setAccessibleDescription(f"{self.choice_name}: choose the metric that the colours show")
        self.choice.currentIndexChanged.connect(lambda: self.choose(self.choice.currentData()))
        self.header.addSpacing(8)
        self.header.addWidget(self.choice)

    def _key(self, key: int, last: int) -> bool:
        """Choose the row that is read, with Up and Down, or handle the key like every plot."""
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


def _closer(least: float, greatest: float) -> tuple[float, float]:
    """Return the closest two of 1, 2 and 5 times a power of ten around two values, all as log10."""
    places = [d + math.log10(m) for d in range(math.floor(least), math.ceil(greatest) + 1) for m in (1, 2, 5)]
    low = max(place for place in places if place <= least + 1e-6)
    return low, min((place for place in places if place >= greatest - 1e-6 and place > low), default=low + 1)
