"""The gradient norm before and after clipping. Why look: often it rises before the loss does, and the distance between
the two curves is what clipping removes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import ClassVar

from PySide6.QtCore import Signal

from gradstudio.core.text import number
from gradstudio.gui.drawing.axes import EitherAxis
from gradstudio.gui.drawing.drag_line import DragLine
from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.peaks import Peaks
from gradstudio.gui.drawing.series import Scale, Series, linear, log10, union
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.spread import Spread
from gradstudio.gui.drawing.usual_range import SpikeCut
from gradstudio.gui.plots.plot_options import SCALE, STEPS, Option
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.knob_hints import advised_max_norm, clipping_in_question, share_over

ADVISE_EVERY = 2.0  # seconds
LEAST = 1e-6  # max_norm that the line can be dragged to on a linear axis
LEAST_DECADES = 1.0  # number of decades on a log axis
REACH = 3.0  # times the height of nearly all norms: beyond, a spike leaves the plot, and its height is written there
STEPS_OR_BAND = Option(STEPS.label, {name: STEPS.choices[name] for name in ("raw", "band")})


class GradientNormPlot(StepPlot):
    """Both norms, and max_norm as a line to drag."""

    title = "Gradient norm (true: unscaled)"
    help = (
        "L2 norm of the whole gradient, without the loss scale, before clipping and as the optimizer used it. Often it "
        "rises before the loss does."
    )

    max_norm_moved = Signal(float)

    columns = ("grad_norm", "clipped_norm", "clip_coef")
    has_words = invites = True
    key = "gradient-norm"
    options: ClassVar[Mapping[str, Option]] = {"scale": SCALE, "steps": STEPS_OR_BAND}

    def __init__(self, steps: StepRange, cursor: Cursor, source: RunSource, overlays: Overlays) -> None:
        self._axis = EitherAxis("left")
        super().__init__(steps, cursor, self._axis)
        self.before = Series(self.canvas, source, "grad_norm", "accent", z=12)
        self.after = Series(self.canvas, source, "clipped_norm", "good", dashed=True, marked=False)
        self.series = (self.before, self.after)
        self.spread, self.peaks = Spread(self.canvas, "accent"), Peaks(self.canvas)
        self._coefficient = source.names.index("clip_coef")
        self.limit = DragLine(self.canvas)
        self.limit.sigDragged.connect(self._on_drag)
        self.limit.sigPositionChangeFinished.connect(self._release)
        self.plot.addItem(self.limit, ignoreBounds=True)
        self._limit: tuple[float | None, bool] = (-1.0, False)  # visible, and whether it is only advised
        self._advised = False
        self._advise_at = 0.0
        self._advised_of: tuple = ()  # whether the run was over at the latest advice, and its length
        self._overlaid = self.draw_overlays(overlays, "grad_norm", "grad_norm")
        self._take_scale()
        self.show_limit(None)
        self.restyle()

    def clear(self) -> None:
        super().clear()
        self._limit, self._advised, self._advise_at = (-1.0, False), False, 0.0  # they belonged to another run
        self._advised_of = ()

    def show_limit(self, max_norm: float | None, *, advised: bool = False) -> None:
        """Show the max_norm in force; or, if nothing is clipped, an `advised` one that would clip only the outliers.
        None if the clipping rule has no max_norm."""
        if self.limit.dragged or (max_norm, advised) == self._limit:
            return
        self._limit, self._advised = (max_norm, advised), advised
        self.limit.show_at(None if max_norm is None else self._place(max_norm), self._limit_text(max_norm or 1.0))
        self.look_again()
        self.redraw()

    def show_limit_of(self, simulator: Simulator, looked: int | None) -> None:
        """Show the max_norm that is requested, or was in force at a viewed step; otherwise advise one."""
        knobs = simulator.requested if looked is None else simulator.run.values_at(looked)
        clipping = knobs.clipping
        if clipping.kind == "none" and looked is None:
            self.advise()
        else:
            is_limit = clipping.kind != "none" and knobs.applies("clipping.max_norm")
            self.show_limit(clipping.max_norm if is_limit else None)

    def advise(self) -> None:
        """Show the max_norm that the run's own norms suggest. It moves only when the advice changes by a quarter."""
        now, run = time.monotonic(), self.run
        known = (run.over, len(run.history)) if run is not None else ()
        if run is None or known == self._advised_of or (now < self._advise_at and not run.over):
            return
        self._advise_at, self._advised_of = now + ADVISE_EVERY, known
        advised = advised_max_norm(run) if clipping_in_question(run) else None
        shown = self._limit[0] if self._advised else None
        if advised is None or shown is None or not 0.8 < advised / shown < 1.25:
            self.show_limit(advised, advised=True)
        elif not self.limit.dragged:
            self.limit.write(self._limit_text(shown))  # with the new share

    def _limit_text(self, max_norm: float) -> str:
        text = f"max_norm\n{number(max_norm)}"
        if self.run is not None and (self._advised or self.limit.dragged):
            text += f"\nwould clip\n{number(100 * share_over(self.run, max_norm), 2)} %"  # narrow, beside the axis
        return text

    def legend(self) -> str:
        c = theme.colors
        marks = self.before.marks_legend()
        before = f"<span style='color:{c.accent}'>—— before clipping</span>"
        after = f"<span style='color:{c.good}'>- - - after</span>"
        kind = "linear" if self._axis.linear else "log"
        whole = f"{before} &nbsp; {after}{f' &nbsp; {marks}' if marks else ''} · {kind}"
        return self.header.first_that_fits(whole, f"{before} &nbsp; {after}", marks)

    @property
    def y_scale(self) -> Scale:
        return self.before.scale

    def take_options(self) -> None:
        held, advised = self._limit
        self._take_scale()
        self._limit = (-1.0, False)  # its line is elsewhere on the other axis
        self.show_limit(None if held == -1.0 else held, advised=advised)

    def _take_scale(self) -> None:
        straight = self.chosen["scale"] == "linear"
        self._axis.make_linear(straight)
        self.before.scale = self.after.scale = linear if straight else log10
        self._has_moved()

    def _place(self, norm: float) -> float:
        """Return the position of a norm on the axis."""
        return norm if self._axis.linear else math.log10(norm)

    @property
    def _norm(self) -> float:
        """The norm at the line; on a linear axis it can be dragged below 0, if no norm is."""
        return max(self.limit.level, LEAST) if self._axis.linear else 10**self.limit.level

    def fit_y(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        cut = SpikeCut(0.0 if self._axis.linear else LEAST_DECADES, REACH) if self.steps.following else None
        limit = (self.limit.level, self.limit.level) if self.limit.isVisible() else None
        spans = [series.range(first, last, cut=cut) for series in self._visible_series()]
        overlaid = self._overlaid.range(first, last, self.y_scale, cut=cut, beside=self.before.highs)
        span = union(*spans, limit, overlaid) or (0.0, 1.0)  # unlike the previous run, if all norms are 0
        self.widget.set_y(*span, least=max(0.05 * abs(span[1]), 1e-9) if self._axis.linear else LEAST_DECADES)

    def draw(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        banded = self.chosen["steps"] == "band"
        self.spread.setVisible(banded)
        self.before.curve.setVisible(not banded)
        if banded:
            self.spread.draw(self.before, first, last)
        for series in self._visible_series():
            series.draw(run.history, first, last)
        self.before.draw_marks()
        self.peaks.find(self.before, "Gradient norm", run.first_nonfinite_step)
        self.strip.show_tags("peaks", self.peaks.tags)

    def _visible_series(self) -> tuple[Series, ...]:
        """Return both curves once a step was clipped: until then the second is hidden under the first."""
        envelope = self.before.envelope
        coefficients = envelope.least[self._coefficient], envelope.greatest[self._coefficient]
        return self.series if coefficients not in ((1.0, 1.0), (math.inf, -math.inf)) else self.series[:1]

    def restyle(self) -> None:
        self.spread.restyle()
        self.peaks.restyle()
        self.limit.apply_style(theme.color("warning"))
        super().restyle()

    def nonfinite_words(self, run: Run, step: int) -> tuple[str, ...]:
        norm = run.history.row(step)["grad_norm"]
        if math.isfinite(norm):
            return ()
        after = (f"{number(norm)}, after {number(run.history.row(step - 1)['grad_norm'])}",) if step else ()
        return *after, number(norm)

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        clipped = f" → {number(row['clipped_norm'])} after clipping" if row["clip_coef"] != 1 else ", not clipped"
        return f"norm {number(row['grad_norm'])}{clipped}"

    def _on_drag(self) -> None:
        self.limit.write(self._limit_text(self._norm))

    def _release(self) -> None:
        self._limit = (-1.0, False)  # unknown, so that the answer is shown
        self.max_norm_moved.emit(float(f"{self._norm:.3g}"))
