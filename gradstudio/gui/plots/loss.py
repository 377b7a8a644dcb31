"""The loss of each step, as measured and smoothed. Why look: training minimizes it, and a NaN shows here last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from PySide6.QtCore import Signal

from gradstudio.core.events import Event
from gradstudio.core.task_measures import loss_may_be_negative, measure, why_it_need_not_fall
from gradstudio.core.text import number, percent
from gradstudio.gui.drawing.axes import EitherAxis
from gradstudio.gui.drawing.canvas import Label
from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.series import Scale, Series, joined, linear, log10
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.spread import Spread
from gradstudio.gui.plots.plot_options import SCALE, SMOOTHING, STEPS, Option
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.plots.step_plot import UNDER_TEXT, StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run, recent_mean
from gradstudio.session.words.names import aim

LABELLED = 3  # of the latest changes
LEAST = 0.2  # decades that a log axis has at least


class LossPlot(StepPlot):
    """The loss on a log axis, or on a linear one where it may be negative, with the latest changes in words."""

    title = "Loss"
    help = "Mean loss of each step's batch, before its update. Training minimizes it; a NaN shows here last."

    columns = ("loss", "accuracy")
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
        self._labels: list[Event] = []
        self._change_texts = [Label(self.canvas, z=45) for _ in range(LABELLED)]
        for text in self._change_texts:
            text.hide()
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
        """Return the measure to watch where the loss does not say how well the run is doing."""
        if self.run is None or not math.isfinite(recent_mean(self.run.history, "accuracy")):
            return ""
        told = aim(self.run)
        return f" · need not fall, watch: {told}" if told else ""

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
        """Draw on a log axis, unless the loss may be negative or a person wants a linear one."""
        straight = self._signed or self.chosen["scale"] == "linear"
        self._axis.make_linear(straight)
        self.raw.scale = self.smooth.scale = linear if straight else log10
        self._has_moved()

    def fit_y(self, run: Run) -> None:
        first, last, straight = self.steps.first, self.steps.last, self._axis.linear
        shortest = None if not self.steps.following else 0.0 if straight else LEAST
        own = self.raw.range(first, last, least=shortest)
        if found := joined(own, self._overlaid.range(first, last, self.y_scale, least=shortest)):
            self.widget.set_y(*found, least=max(0.05 * abs(found[0]), 1e-6) if straight else LEAST)

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

    def _draw_marks(self, run: Run) -> None:
        if self.marks.miss_changes(run):
            self._labels = [] if self.marks.hides_changes else run.changes[-LABELLED:]
        for text, event in zip(self._change_texts, self._labels, strict=False):
            text.setText(event.text)
        super()._draw_marks(run)

    def _place_labels(self) -> None:
        """Put each label beside its line, one over the other and never over the edge: to the left of its line where
        there is no room on the right, and in a narrow plot on both sides."""
        super()._place_labels()
        left, right = self.box.viewRange()[0]
        width, height = (max(length, 1.0) for length in self.canvas.size)
        for index, text in enumerate(self._change_texts):
            at = self.steps.places.of(self._labels[index].step - 0.5) if index < len(self._labels) else math.inf
            text.setVisible(left <= at <= right)
            if left <= at <= right:
                place, box = width * (at - left) / (right - left), text.boundingRect()
                aside = 0.0 if place + box.width() <= width else 1.0 if place >= box.width() else place / width
                text.place(place, height - index * box.height(), (aside, 1))

    def restyle(self) -> None:
        self.spread.restyle()
        for text in self._change_texts:
            text.dress(theme.color("accent"), theme.color("plot", UNDER_TEXT), theme.font(0.8))
        super().restyle()

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        accuracy = ""
        if not math.isnan(row["accuracy"]):
            accuracy = f" · {measure(run.experiment).batch.format(percent(row['accuracy']))}"
        return f"loss {number(row['loss'])}{accuracy}"

    def nonfinite_mark(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        loss = row["loss"]
        if math.isfinite(loss):
            return f"{'gradient' if row['nonfinite'] else 'weights'} not finite · step {step:,}"
        before = f", after {number(run.history.row(step - 1)['loss'])}" if step else ""
        return f"{number(loss)} · step {step:,}{before}"
