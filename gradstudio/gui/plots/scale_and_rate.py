"""Loss scale and learning rate. Why look: the scale halves at every overflow, and each time an update is skipped."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg

from gradstudio.core.text import number
from gradstudio.gui.plots.axes import LinearAxis, Log2Axis
from gradstudio.gui.plots.series import Series, column, log2
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run


class ScaleAndRatePlot(StepPlot):
    title = "Loss scale · learning rate"
    help = "The factor on the loss under fp16, halved at each overflow (a skipped update, marked), and the learning rate of each update."

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        right = LinearAxis("right")
        super().__init__(steps, cursor, Log2Axis("left"), right)
        self._rates = pg.ViewBox(enableMenu=False, defaultPadding=0)
        self._rates.setMouseEnabled(x=False, y=False)
        self._rates.setZValue(-10)
        self.plot.scene().addItem(self._rates)
        right.linkToView(self._rates)
        right.setStyle(showValues=True)
        self.box.sigResized.connect(lambda: self._rates.setGeometry(self.box.sceneBoundingRect()))
        self.scale = Series(self.plot, column("scale"), "accent")
        self.scale.scale = log2
        self.rate = Series(self._rates, column("lr"), "good", dashed=True, marked=False)
        self._skips = Series(self.plot, column("skipped"), "bad", marked=False)
        self._skipped = 0  # steps
        self.series = (self.scale, self.rate, self._skips)
        self._skip_marks = pg.ScatterPlotItem(symbol="t", size=8, pen=None)
        self._skip_marks.setZValue(30)
        self.plot.addItem(self._skip_marks, ignoreBounds=True)
        self.restyle()

    def legend(self) -> str:
        c = theme.colors
        rate = f"<span style='color:{c.good}'>- - - learning rate</span>"
        if self.run is None or not self._scaled():
            dtype = self.run.in_force.precision.dtype if self.run else "fp32"
            return f"{dtype}: no loss scale in use &nbsp; {rate} (right)"
        marks = f" &nbsp; <span style='color:{c.bad}'>▼ {self._skipped:,} skipped</span>" if self._skipped else ""
        return f"<span style='color:{c.accent}'>—— scale, log₂</span>{marks} &nbsp; {rate} (right)"

    def clear(self) -> None:
        super().clear()
        self._skipped = 0
        self._skip_marks.setData([], [])

    def read(self, run: Run, start: int, stop: int) -> None:
        super().read(run, start, stop)
        self._skipped += int(run.history.column("skipped", start, stop).sum())

    @property
    def left_values(self) -> bool:
        return self._scaled()

    def draw(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        scaled = self._scaled()
        self.show_values("right", bool(len(run.history)))
        if scaled and (found := self.scale.range(first, last)):
            self.set_y(*found, least=2.0)
            self.scale.draw(run.history, first, last)
            low, high = self.box.viewRange()[1]
            steps, flags = self._skips.envelope.curve()
            at = np.unique(steps[flags > 0])
            self._skip_marks.setVisible(bool(len(at)))
            self._skip_marks.setData(at, np.full(len(at), low + (high - low) * 0.12))
            self.scale.draw_marks(low, high)
        self._rates.setXRange(*self.box.viewRange()[0], padding=0)
        if found := self.rate.range(first, last):
            self._set_rate_range(*found)
        self.rate.draw(run.history, first, last)

    def restyle(self) -> None:
        self._skip_marks.setBrush(pg.mkBrush(theme.color("bad")))
        super().restyle()

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        scale = f"scale {number(row['scale'])}{', skipped' if row['skipped'] else ''} · " if self._scaled() else ""
        return f"{scale}learning rate {number(row['lr'])}"

    def _scaled(self) -> bool:
        if self.run is not None and self.run.in_force.precision.dtype == "fp16" and self.run.in_force.precision.scaling != "none":
            return True
        found = self.scale.envelope.range(0, max(self.scale.envelope.count, 1), positive=False)
        return found is not None and found != (1.0, 1.0)

    def _set_rate_range(self, low: float, high: float) -> None:
        now_low, now_high = self._rates.viewRange()[1]
        top = max(high * 1.3, 1e-12)
        if not (now_low == 0 and high * 1.1 <= now_high <= 3 * top):
            self._rates.setYRange(0.0, float(top), padding=0)
