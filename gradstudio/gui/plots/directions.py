"""Test accuracy and directions, on demand. Why look: a falling loss is of little use if the test set is not learned, if
the examples look alike to the last layer, or if clipping or the optimizer turn the gradient."""

from __future__ import annotations

import math

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.task_measures import measure
from gradstudio.core.text import number, percent
from gradstudio.core.unknown import is_known, known_mask
from gradstudio.gui.drawing.axes import LinearAxis
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.curve_source import Source
from gradstudio.gui.drawing.dots import Dots
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.drawing.nan_marks import SIZE
from gradstudio.gui.drawing.series import Series, union
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

EVERY_STEP = ("clip_cosine", "update_cosine")
NOW_AND_THEN = ("test_accuracy", "head_cosine")
EDGE = 0.02  # so that a line at 1 is not on the edge of the plot
_BROKEN = "broken"  # 1 where something was measured as NaN
End = tuple[int, float] | None  # the number of steps of a finished run, and its accuracy on the test set


class MeasuredColumn:
    """A column that is measured at a few steps, as dots: its course between them is unknown."""

    def __init__(self, canvas: Canvas, name: str, role: str, *, hollow: bool = False) -> None:
        self.name, self._role, self._hollow = name, role, hollow
        self._dots = Dots(canvas, 15)
        self.clear()

    def clear(self) -> None:
        self.steps = self.values = np.empty(0)
        self._dots.show_at(self.steps, self.values)

    def take(self, history: History, start: int, stop: int) -> None:
        steps, values = history.measurements(self.name, start, stop)
        self.steps, self.values = np.concatenate([self.steps, steps]), np.concatenate([self.values, values])

    def draw(self, end: End = None) -> None:
        """Draw the measurements, and a last value that no row has."""
        self._dots.show_at(*self._with(end))

    def range(self, first: float, last: float, end: End = None) -> tuple[float, float] | None:
        """Return the minimum and the maximum of the values that `draw` draws; None if there are none."""
        steps, values = self._with(end)
        shown = values[(steps >= first) & (steps <= last) & np.isfinite(values)]
        return (float(shown.min()), float(shown.max())) if len(shown) else None

    def _with(self, end: End) -> tuple[np.ndarray, np.ndarray]:
        if end is None:
            return self.steps, self.values
        return np.append(self.steps, end[0]), np.append(self.values, end[1])

    def restyle(self) -> None:
        self._dots.apply_style(theme.color(self._role), hollow=self._hollow)


class DirectionsPlot(StepPlot):
    """A plot that is shown only on request."""

    title = "Test accuracy · directions"
    help = (
        "Accuracy on the test set and the mean cosine between its examples at the last layer (dots, every so many "
        "steps and at the end); the cosine between the gradient before and after clipping, and between the gradient "
        "and the update."
    )

    columns = (*NOW_AND_THEN, *EVERY_STEP)

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, LinearAxis("left"))
        source = Source((*EVERY_STEP, _BROKEN), _read)
        self.clip = Series(self.canvas, source, "clip_cosine", "good", dashed=True, marked=False)
        self.update_ = Series(self.canvas, source, "update_cosine", "warning", marked=False)
        self.series = (self.clip, self.update_)
        self.accuracy = MeasuredColumn(self.canvas, "test_accuracy", "accent")
        self.alike = MeasuredColumn(self.canvas, "head_cosine", "dim", hollow=True)
        self.measured = (self.accuracy, self.alike)
        self._broken = Marks(self.canvas, "cross", SIZE, z=30, height=0.04)
        self.restyle()
        self.hide()

    def clear(self) -> None:
        super().clear()
        for curve in self.measured:
            curve.clear()
        self._broken.show_at(np.empty(0))

    def read(self, run: Run, start: int, stop: int) -> None:
        super().read(run, start, stop)
        for curve in self.measured:
            curve.take(run.history, start, stop)

    def fit_y(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        curves = (*self.series, self.alike)
        if span := union(*(each.range(first, last) for each in curves), self.accuracy.range(first, last, _end(run))):
            self.widget.set_y(span[0] - EDGE, span[1] + EDGE, least=0.1)

    def draw(self, run: Run) -> None:
        for series in self.series:
            series.draw(run.history, self.steps.first, self.steps.last)
        self.alike.draw()
        end = _end(run)
        self.accuracy.draw(end)
        broken = self.clip.envelope.above_zero(len(EVERY_STEP))
        if end is not None and math.isnan(end[1]):
            broken = np.append(broken, end[0])
        if len(broken) != len(self._broken.steps):
            self._broken.show_at(broken)

    def legend(self) -> str:
        c = theme.colors
        return (
            f"<span style='color:{c.accent}'>• test accuracy</span> &nbsp; "
            f"<span style='color:{c.dim}'>○ cosine at the head</span> &nbsp; "
            f"<span style='color:{c.good}'>- - - of clipping</span> &nbsp; "
            f"<span style='color:{c.warning}'>—— of the update</span>"
        )

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        told = {
            "test_accuracy": measure(run.experiment).headline.format(percent(row["test_accuracy"])),
            "head_cosine": f"cosine at the head {number(row['head_cosine'])}",
            "clip_cosine": f"of clipping {number(row['clip_cosine'])}",
            "update_cosine": f"of the update {number(row['update_cosine'])}",
        }
        return " · ".join(text for name, text in told.items() if is_known(row[name])) or "not measured"

    def restyle(self) -> None:
        for curve in self.measured:
            curve.restyle()
        self._broken.apply_style(None, theme.color("bad"))
        super().restyle()


def _end(run: Run) -> End:
    return (len(run.history), run.accuracy) if run.over and run.accuracy is not None else None


def _read(name: str, history: History, start: int, stop: int) -> np.ndarray:
    """Return rows of a column of every step, or whether anything was measured as NaN."""
    if name != _BROKEN:
        return history.column(name, start, stop)
    columns = np.stack([history.column(each, start, stop) for each in (*EVERY_STEP, *NOW_AND_THEN)])
    return (np.isnan(columns) & known_mask(columns)).any(0).astype(float)
