"""The loss of each step, as measured and smoothed. Why look: training minimizes it, and a NaN shows here last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from PySide6.QtCore import Signal

from gradstudio.core.row import loss_broke
from gradstudio.core.task_measures import loss_may_be_negative, measure, why_it_need_not_fall
from gradstudio.core.text import number, percent
from gradstudio.gui.drawing.axes import EitherAxis
from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.peaks import Peaks
from gradstudio.gui.drawing.series import Scale, Series, linear, log10, union
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.spread import Spread
from gradstudio.gui.drawing.usual_range import SpikeCut
from gradstudio.gui.plots.plot_options import SCALE, SMOOTHING, STEPS, Option
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.session.record.run import Run, recent_mean
from gradstudio.session.words.names import aim

LEAST = 0.2  # decades of a log axis, at least
REACH = 2.5  # times the height of nearly all losses: beyond, a spike leaves the plot


class LossPlot(StepPlot):
    """The loss on a log axis, or on a linear one if it may be negative, with its changes in words."""

    title = "Loss"
    help = "Mean loss of each step's batch, before its update. Training minimizes it; a NaN shows here last."

    columns = ("loss", "accuracy")
    has_words = invites = True
    key = "loss"
    options: ClassVar[Mapping[str, Option]] = {"scale": SCALE, "smoothing": SMOOTHING, "steps": STEPS}

    smoothing_chosen = Signal(float)

    def __init__(self, steps: StepRange, cursor: Cursor, source: RunSource, overlays: Overlays) -> None:
        self._axis = EitherAxis("left")
        super().__init__(steps, cursor, self._axis)
        self.raw = Series(self.canvas, source, "loss", "accent", alpha=90)
        self.smooth = Series(self.canvas, source, "smooth", "accent", z=12, marked=False, stateful=True)
        self.raw.scale = self.smooth.scale = log10
        self.series = (self.raw, self.smooth)
        self.spread = Spread(self.canvas, "accent")
        self._signed = False
        self.peaks = Peaks(self.canvas)
        self._overlaid = self.draw_overlays(overlays, "smooth", "loss")
        self._smoothing = self.chosen["smoothing"]
        source.smooth(float(self._smoothing))
        self._take_scale()
        self.restyle()

    @property
    def y_scale(self) -> Scale:
        return self.raw.scale

    def legend(self) -> str:
        marks = self.raw.marks_legend()
        watch = self._what_to_watch()
        smoothing = self.chosen["smoothing"]
        smoothed = f"smoothed {smoothing}" if smoothing != "0" else "not smoothed"
        single = {"raw": "raw" if watch else "raw 35 %", "band": "band of all steps", "none": ""}[self.chosen["steps"]]
        # short, as a narrow plot has no room for more
        curves = ", ".join(filter(None, (single, "smoothed" if watch else smoothed)))
        return f"{curves}{' · linear' if self._axis.linear else ' · log'}{watch}{f' &nbsp; {marks}' if marks else ''}"

    def _what_to_watch(self) -> str:
        """Return the measure to watch if the loss does not show how well the run is doing."""
        if self.run is None or not math.isfinite(recent_mean(self.run.history, "accuracy")):
            return ""
        text = aim(self.run)
        return f" · need not fall, watch: {text}" if text else ""

    def clear(self) -> None:
        super().clear()
        if self.run is not None:
            self._signed = loss_may_be_negative(self.run.experiment)
            self._take_scale()
            why = why_it_need_not_fall(self.run.experiment)
            self.title_label.setToolTip(f"{self.help} {why}".strip())

    def take_options(self) -> None:
        self._take_scale()
        if self.chosen["smoothing"] != self._smoothing:
            self._smoothing = self.chosen["smoothing"]
            self.smoothing_chosen.emit(float(self._smoothing))

    def _take_scale(self) -> None:
        """Use a log axis, unless the loss may be negative or the user prefers a linear one."""
        straight = self._signed or self.chosen["scale"] == "linear"
        self._axis.make_linear(straight)
        self.raw.scale = self.smooth.scale = linear if straight else log10
        self._has_moved()

    def fit_y(self, run: Run) -> None:
        first, last, straight = self.steps.first, self.steps.last, self._axis.linear
        cut = SpikeCut(0.0 if straight else LEAST, REACH) if self.steps.following else None
        own = self.raw.range(first, last, cut=cut)
        over = self._overlaid.range(first, last, self.y_scale, cut=cut, beside=self.raw.highs)
        span = union(own, over) or (0.0, 1.0)  # unlike the previous run, if nothing can be drawn
        self.widget.set_y(*span, least=max(0.05 * abs(span[0]), 1e-6) if straight else LEAST)

    def draw(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        single = self.chosen["steps"]
        self.raw.curve.setVisible(single == "raw")
        self.spread.setVisible(single == "band")
        if single == "raw":
            self.raw.draw(run.history, first, last)
        elif single == "band":
            self.spread.draw(self.raw, first, last)
        self.smooth.draw(run.history, first, last)
        self.raw.draw_marks()
        self.peaks.find(self.smooth if single == "none" else self.raw, "Loss", run.first_nonfinite_step)
        self.strip.show_tags("peaks", self.peaks.tags)

    def restyle(self) -> None:
        self.spread.restyle()
        self.peaks.restyle()
        super().restyle()

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        accuracy = ""
        if not math.isnan(row["accuracy"]):
            accuracy = f" · {measure(run.experiment).batch.format(percent(row['accuracy']))}"
        return f"loss {number(row['loss'])}{accuracy}"

    def nonfinite_words(self, run: Run, step: int) -> tuple[str, ...]:
        row = run.history.row(step)
        loss, where = row["loss"], f"step {self.steps.places.number(step):,}"
        if not loss_broke(loss):
            what = "gradient" if row["nonfinite"] else "weights"
            return f"{what} not finite · {where}", f"{what} not finite"
        text = f"{number(loss)} · {where}"
        after = (f"{text}, after {number(run.history.row(step - 1)['loss'])}",) if step else ()
        return *after, text, number(loss)
