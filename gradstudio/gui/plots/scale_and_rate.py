"""Loss scale and learning rate. Why look: at every overflow the scale halves and an update is skipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyqtgraph as pg
from PySide6.QtWidgets import QSizePolicy

from gradstudio.core.text import number, plural
from gradstudio.gui.drawing.axes import LinearAxis, Log2Axis
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.cheap_frame import leave_unpainted
from gradstudio.gui.drawing.envelope import Envelope
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.drawing.series import Series, log2
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.plot_options import Option
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

_FIXED = QSizePolicy.Policy.Fixed


class ScaleAndRatePlot(StepPlot):
    """The scale on the left axis, the rate on the right one, and a mark for each skipped update."""

    title = "Loss scale · learning rate"
    help = (
        "The factor on the loss under fp16, which halves at each overflow (the update is skipped, and marked), and the "
        "learning rate of each update."
    )

    columns = ("scale", "skipped", "lr")
    key = "scale"
    options: ClassVar[Mapping[str, Option]] = {
        "unscaled": Option("Without a loss scale", {"line": "One line of text", "plot": "Plot of the rate"})
    }
    with_rate = True

    def __init__(self, steps: StepRange, cursor: Cursor, source: RunSource) -> None:
        right = LinearAxis("right")
        super().__init__(steps, cursor, Log2Axis("left"), right)
        self._rates = pg.ViewBox(enableMenu=False, defaultPadding=0)
        self._rates.setMouseEnabled(x=False, y=False)
        self._rates.setZValue(-10)
        leave_unpainted(self._rates)
        self.plot.scene().addItem(self._rates)
        right.linkToView(self._rates)
        right.setStyle(showValues=self.with_rate)
        self.box.sigResized.connect(lambda: self._rates.setGeometry(self.box.sceneBoundingRect()))
        self.scale = Series(self.canvas, source, "scale", "accent")
        self.scale.scale = log2
        self._rates_canvas = Canvas(self._rates, steps.places)
        self.rate = Series(self._rates_canvas, source, "lr", "good", dashed=True, marked=False)
        self._skips = Envelope()
        self._skipped = 0  # steps
        self.folded = False  # whether only the line of text is shown
        self.series = (self.scale, self.rate)
        self._skip_marks = Marks(self.canvas, "down", 8, z=30, height=0.88)
        self.restyle()

    def refresh(self, run: Run, scale: float) -> None:
        super().refresh(run, scale)
        self._fold()

    def _fold(self) -> None:
        """Leave only the line of text if there is no loss scale and the rate is not warmed up."""
        run = self.run
        folded = (
            self.with_rate and run is not None and not self.alone and self.chosen["unscaled"] == "line"
            and not self._has_scale() and not run.in_force.schedule.warmup_steps
        )  # fmt: skip
        if folded != self.folded:
            self.folded = folded
            self.widget.setVisible(not folded)
            self.setSizePolicy(QSizePolicy.Policy.Preferred, _FIXED if folded else QSizePolicy.Policy.Preferred)
            if run is not None:
                self._say(run)

    def _in_words(self, run: Run) -> str:
        """Return the loss scale and the rate in words, for when nothing is drawn."""
        precision, schedule = run.in_force.precision, run.in_force.schedule
        count = len(run.history)
        rates = [run.history.value("lr", step) for step in (0, count - 1)] if count else [run.in_force.optimizer.lr] * 2
        first, last = map(number, rates)
        rate = first if first == last else f"{first} → {last}"
        kind = f", {schedule.kind}" if run.watched is None and schedule.kind != "constant" else ""
        told = f"learning rate {rate}{kind}"
        if run.watched is not None and run.watched.log:  # which need not have the loss scale
            return self.header.first_that_fits(told, "")
        return self.header.first_that_fits(f"{precision.dtype}: no loss scale · {told}", f"learning rate {rate}", "")

    def legend(self) -> str:
        c = theme.colors
        if self.folded and self.run is not None:
            return self._in_words(self.run)
        rate = f"<span style='color:{c.good}'>- - - learning rate</span> (right)" if self.with_rate else ""
        if self.run is None or not self._has_scale():
            dtype = self.run.in_force.precision.dtype if self.run else "fp32"
            if not self.with_rate:
                return "no loss scale in use"
            return self.header.first_that_fits(f"{dtype}: no loss scale in use &nbsp; {rate}", rate, "")
        marks = f"<span style='color:{c.bad}'>▼ {self._skipped:,} skipped</span>" if self._skipped else ""
        parts = [part for part in (f"<span style='color:{c.accent}'>—— scale, log₂</span>", marks, rate) if part]
        return self.header.first_that_fits(*(" &nbsp; ".join(parts[:count]) for count in range(len(parts), 0, -1)), "")

    def clear(self) -> None:
        super().clear()
        self._skips = Envelope()
        self._skipped = 0
        self._skip_marks.show_at(np.empty(0))

    def read(self, run: Run, start: int, stop: int) -> None:
        super().read(run, start, stop)
        if self._has_scale():  # only then an update can be skipped
            skips = run.history.column("skipped", self._skips.count, stop)
            self._skips.append(skips[None])
            self._skipped += np.count_nonzero(skips == 1)

    def _shows(self, run: Run, stop: int) -> bool:
        """Return whether to draw: a rate that never changed is a straight line, whose end can wait."""
        envelope, index = self.rate.envelope, self.rate.index
        level = not self._has_scale() and envelope.least[index] == envelope.greatest[index]
        return self._overdue(run) if level and self._seen else super()._shows(run, stop)

    @property
    def left_values(self) -> bool:
        return self._has_scale()

    def fit_y(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        if self._has_scale() and (span := self.scale.range(first, last)):
            self.widget.set_y(*span, least=2.0)
        if self._rates.viewRange()[0] != self.box.viewRange()[0]:
            self._rates.setXRange(*self.box.viewRange()[0], padding=0)
            self._has_moved()
        if self.with_rate and (span := self.rate.range(first, last)):
            self._set_rate_range(*span)

    def draw(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        self.show_values("right", self.with_rate and bool(len(run.history)))
        if self._has_scale():
            self.scale.draw(run.history, first, last)
            if self._skipped:
                self._skip_marks.show_at(self._skips.above_zero())
            self.scale.draw_marks()
        if self.with_rate:
            self.rate.draw(run.history, first, last)

    def restyle(self) -> None:
        self._skip_marks.apply_style(None, theme.color("bad"))
        super().restyle()

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        scale = (
            f"scale {number(row['scale'])}{', skipped' if row['skipped'] == 1 else ''} · " if self._has_scale() else ""
        )
        return f"{scale}learning rate {number(row['lr'])}" if self.with_rate else scale.removesuffix(" · ")

    def spoken(self, run: Run) -> str:
        shown = (*(["scale"] if self._has_scale() else []), *(["lr"] if self.with_rate else []))
        skipped = int(np.count_nonzero(run.history.column("skipped") == 1))
        updates = f" {plural(skipped, 'update was', 'updates were')} skipped." if self._has_scale() else ""
        return self.summaries.words(run.history, shown, len(run.history)) + updates

    def _has_scale(self) -> bool:
        return self.is_scaled(self.run)

    def is_scaled(self, run: Run | None) -> bool:
        """Return whether a loss scale is in use or has been, in the rows that were read."""
        precision = run.in_force.precision if run is not None else None
        if precision is not None and precision.dtype == "fp16" and precision.scaling != "none":
            return True
        envelope, index = self.scale.envelope, self.scale.index
        return (envelope.least[index], envelope.greatest[index]) not in ((1.0, 1.0), (np.inf, -np.inf))

    def _set_rate_range(self, low: float, high: float) -> None:
        now_low, now_high = self._rates.viewRange()[1]
        top = max(high * 1.3, 1e-12)
        if not (now_low == 0 and high * 1.1 <= now_high <= 3 * top):
            self._rates.setYRange(0.0, float(top), padding=0)
            self._has_moved()
