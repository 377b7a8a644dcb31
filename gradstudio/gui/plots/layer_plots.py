"""The plots of one layer: each draws one or two of its metrics over the steps. Why look: the heatmap of all layers
shows where something happens, and these show what it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QPen

from gradstudio.core.columns import DERIVED_METRICS, LAYER_METRICS
from gradstudio.core.files import Content
from gradstudio.core.history import History
from gradstudio.core.row import Layer
from gradstudio.core.rule_thresholds import all_rules
from gradstudio.core.rules.update_ratio_high import UpdateRatioHigh
from gradstudio.core.rules.update_ratio_low import UpdateRatioLow
from gradstudio.core.text import number, percent
from gradstudio.core.unknown import is_known, known_mask
from gradstudio.gui.drawing.axes import Axis, EitherAxis, LinearAxis
from gradstudio.gui.drawing.band import Band
from gradstudio.gui.drawing.canvas import VerticalLine
from gradstudio.gui.drawing.curve_source import Source
from gradstudio.gui.drawing.series import Scale, Series, linear, log10, union
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.usual_range import SpikeCut
from gradstudio.gui.plots.plot_options import SCALE, Option
from gradstudio.gui.plots.step_frame import NOTHING
from gradstudio.gui.plots.step_plot import UNDER_TEXT, StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.files import csv_table
from gradstudio.session.record.run import Run
from gradstudio.session.words.curve_words import curve_words

AT_ONCE = 1_000_000  # values of all layers read in a frame: a long run takes several frames, as its blocks are on disk
REACH = 5.0  # times the height of nearly all of a curve: an explosion leaves its plot
ROLES = ("accent", "warning", "good")


class LayerSource(Source):
    """Metrics of one layer, without their sign; `place` is its index among the layers."""

    def __init__(self, metrics: tuple[str, ...]) -> None:
        self.place = 0
        super().__init__(metrics, self._read)

    def look_at(self, place: int) -> None:
        """Read another layer from now on."""
        self.place = place
        self.clear()

    def _read(self, metric: str, history: History, start: int, stop: int) -> np.ndarray:
        return np.abs(history.layer_metric(metric, start, stop)[:, self.place].astype(float))


class LayerPlot(StepPlot):
    """Up to three metrics of one layer. Subclasses name them, and use a log axis unless `shares`."""

    metrics: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # for each metric
    shares = False
    options: ClassVar[Mapping[str, Option]] = {"scale": SCALE}
    least = 0.5  # decades of the y axis, at least, or its share of 1

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        self.source = LayerSource(self.metrics)
        self._axis = EitherAxis("left")
        axis: Axis = LinearAxis("left") if self.shares else self._axis
        super().__init__(steps, cursor, axis)
        self.layer: Layer | None = None
        self.series = tuple(
            Series(self.canvas, self.source, metric, role, dashed=bool(index), z=12 - index)
            for index, (metric, role) in enumerate(zip(self.metrics, ROLES, strict=False))
        )
        self.band = self._band()
        self.take_options()
        self._marked = VerticalLine(self.canvas)
        self._marked.hide()
        self.restyle()

    def look_at(self, layer: Layer | None, place: int) -> None:
        """Show another layer, with the index `place`; None if the run has not begun."""
        self.layer = layer
        self.source.look_at(place)
        self.run = None  # so that everything is reread

    def rows(self, run: Run) -> int:
        count = len(run.history)
        if self.layer is None:
            return 0
        return min(count, self.source.envelope.count + max(AT_ONCE // max(len(run.history.layers), 1), 1))

    @property
    def y_scale(self) -> Scale:
        return linear if self.straight else log10

    @property
    def straight(self) -> bool:
        """Whether the axis is linear."""
        return self.shares or self.chosen["scale"] == "linear"

    def take_options(self) -> None:
        self._axis.make_linear(self.straight)
        for series in self.series:
            series.scale = self.y_scale
        if self.band is not None:
            self.band.set_levels(*self._limits())
        self._has_moved()

    def fit_y(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        cut = None
        if self.steps.following and not self.shares:
            cut = SpikeCut(0.0 if self.straight else self.least, REACH)
        spans = [series.range(first, last, cut=cut) for series in self.series]
        if span := union(*spans, self.always()):
            least = self.least if self.shares or not self.straight else max(0.05 * abs(span[1]), 1e-12)
            self.widget.set_y(*span, least=least)

    def always(self) -> tuple[float, float] | None:
        """Return the range that the y axis shows in any case."""
        return (0.0, 0.0) if self.shares else None

    def draw(self, run: Run) -> None:
        for series in self.series:
            series.draw(run.history, self.steps.first, self.steps.last)
            series.draw_marks()

    def legend(self) -> str:
        lines, flags, least = ("——", "- - -", "- - -"), self.source.envelope.flags, self.source.envelope.least
        texts = [
            f"<span style='color:{theme.color(role).name()}'>{line} {word}</span>"
            for place, (line, word, role) in enumerate(zip(lines, self.words, ROLES, strict=False))
            if not self._seen or flags[place] or least[place] < math.inf  # or it was never measured
        ]
        marks = " ".join(dict.fromkeys(filter(None, (series.marks_legend() for series in self.series))))
        return f"{' &nbsp; '.join(texts)}{f' &nbsp; {marks}' if marks else ''} · {'linear' if self.straight else 'log'}"

    def reading(self, run: Run, step: int) -> str:
        if self.layer is None:
            return ""
        told = percent if self.shares else number
        values = [run.history.layer_metric(metric, step, step + 1)[0, self.source.place] for metric in self.metrics]
        pairs = [(word, float(value)) for word, value in zip(self.words, values, strict=True)]
        return " · ".join(f"{word} {told(value)}" for word, value in pairs if is_known(value))

    def spoken(self, run: Run) -> str:
        if self.layer is None:
            return NOTHING
        count, told = self._seen, percent if self.shares else number  # the visible part: the rest may be on disk
        steps = run.history.column("step", 0, count)
        curves = (run.history.layer_metric(metric, 0, count)[:, self.source.place] for metric in self.metrics)
        figures = (
            curve_words(word, steps[there], curve[there], told)
            for word, curve in zip(self.words, curves, strict=True)
            for there in [known_mask(curve)]
        )
        return f"{self.layer.name}: {' '.join(filter(None, figures))}"

    def own_data(self) -> Content | None:
        run = self.run
        if run is None or self.layer is None:
            return "step\n"
        history, place = run.history, self.source.place

        def read(start: int, stop: int) -> list[list[str]]:
            layers = [history.layer_metric(metric, start, stop)[:, place] for metric in self.metrics]
            steps = csv_table.column("step", history.column("step", start, stop))
            return [steps, *(csv_table.floats(layer) for layer in layers)]

        return lambda file: csv_table.write_columns(file, ("step", *self.metrics), 0, len(history), read)

    def mark_step(self, step: int | None) -> None:
        """Mark the step whose entries are shown."""
        self._marked.setVisible(step is not None)
        if step is not None:
            self._marked.move_to(step)

    def restyle(self) -> None:
        if self.band is not None:
            self.band.apply_style(theme.color("good", 26), theme.color("good"), theme.color("plot", UNDER_TEXT))
        self._marked.setPen(QPen(theme.color("accent"), 0, Qt.PenStyle.DotLine))
        super().restyle()

    def _band(self) -> Band | None:
        """Return the band of healthy values, if there is one."""
        return None

    def _limits(self) -> tuple[float, float]:
        """Return the two ends of the band on the axis."""
        return 0.0, 0.0


class LayerNorms(LayerPlot):
    key, title = "layer-norms", "Layer: norms"
    help = f"Gradient: {LAYER_METRICS['grad_norm']}. Weights: {LAYER_METRICS['weight_norm']}."
    metrics, words = ("grad_norm", "weight_norm"), ("gradient", "weights")


class LayerUpdates(LayerPlot):
    """With the band that the rules call neither too small nor too large."""

    key, title = "layer-updates", "Layer: update / weight"
    help = (
        f"{LAYER_METRICS['update_ratio']}; {DERIVED_METRICS['grad_ratio']}. The band for updates lies between the "
        "limits of the rules “Updates too small” and “Updates too large”, which judge all weights together; a bias "
        "that begins at 0 lies above it for a while."
    )
    metrics, words = ("update_ratio", "grad_ratio"), ("update / weight", "gradient / weight")

    def always(self) -> tuple[float, float] | None:
        return (self.band.low, self.band.high) if self.band is not None else None

    def _band(self) -> Band | None:
        low, high = healthy_updates()
        if not 0 < low < high < math.inf:
            return None  # as the user may have configured them
        return Band(self.canvas, low, high, f"healthy: {number(low)} to {number(high)}")

    def _limits(self) -> tuple[float, float]:
        low, high = healthy_updates()
        return (low, high) if self.straight else (math.log10(low), math.log10(high))


class LayerLargest(LayerPlot):
    key, title = "layer-entries", "Layer: gradient entries"
    help = (
        f"{LAYER_METRICS['largest_grad'].capitalize()}; {DERIVED_METRICS['grad_std']}; {LAYER_METRICS['grad_mean']}, "
        "without its sign. fp16 holds no entry above 65,504, loss scale included."
    )
    metrics, words = ("largest_grad", "grad_std", "grad_mean"), ("largest |entry|", "std", "|mean|")


class LayerShares(LayerPlot):
    key, title, options = "layer-zeros", "Layer: zeros, NaN and Inf", MappingProxyType({})
    help = (
        f"{LAYER_METRICS['zero_share'].capitalize()}; {LAYER_METRICS['nonfinite_share']}; {LAYER_METRICS['cut_share']}."
    )
    metrics, words = ("zero_share", "nonfinite_share", "cut_share"), ("zeros", "NaN and Inf", "cut by value")
    shares, least = True, 0.1


def healthy_updates() -> tuple[float, float]:
    """Return the rules' limits of update / weight, the lower one first."""
    rules = all_rules()
    low = next(rule.ratio for rule in rules if isinstance(rule, UpdateRatioLow))
    return low, next(rule.ratio for rule in rules if isinstance(rule, UpdateRatioHigh))
