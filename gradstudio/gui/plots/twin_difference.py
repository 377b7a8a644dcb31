"""The difference between twins. Why look: the step at which they part, and whether the difference grows, show the
effect of the knob."""

from __future__ import annotations

import numpy as np
from PySide6.QtGui import QPen

from gradstudio.core.history import History
from gradstudio.core.text import number
from gradstudio.gui.drawing.axes import LogAxis
from gradstudio.gui.drawing.canvas import VerticalLine
from gradstudio.gui.drawing.curve_source import Source
from gradstudio.gui.drawing.label_strip import Tag
from gradstudio.gui.drawing.series import Series, log10, union
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.usual_range import SpikeCut
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run
from gradstudio.session.record.twins import Twins

LEAST = 1.0  # decades of the axis, at least
REACH = 5.0  # times the height of nearly all differences


class DifferencePlot(StepPlot):
    """A plot that is shown only while there are twins."""

    title = "Difference of the twins"
    has_words = True
    help = (
        "Absolute difference of the loss and of the gradient norm between two runs of the same seed and batches "
        "that differ in one knob."
    )

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, LogAxis("left"))
        self.twins: Twins | None = None
        self._source = Source(("loss", "grad_norm"), self._read)
        self.loss = Series(self.canvas, self._source, "loss", "accent", z=12)
        self.norm = Series(self.canvas, self._source, "grad_norm", "good", dashed=True, marked=False)
        self.loss.scale = self.norm.scale = log10
        self.series = (self.loss, self.norm)
        self._parting = VerticalLine(self.canvas)
        self._parting.hide()
        self._parted: int | None = None
        self.restyle()
        self.hide()

    def show_twins(self, twins: Twins | None) -> None:
        """Show these twins, or nothing."""
        if twins is not self.twins:
            self.twins, self.run, self._parted = twins, None, None
            self._source.clear()
            self.setVisible(twins is not None)

    def rows(self, run: Run) -> int:
        return self.twins.steps if self.twins else 0

    def fit_y(self, run: Run) -> None:
        cut = SpikeCut(LEAST, REACH) if self.steps.following else None
        first, last = self.steps.first, self.steps.last
        if span := union(*(series.range(first, last, cut=cut) for series in self.series)):
            self.widget.set_y(*span, least=LEAST)

    def draw(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        for series in self.series:
            series.draw(run.history, first, last)
        self.loss.draw_marks()
        self._parted = self.twins.look() if self.twins else None
        self._parting.setVisible(self._parted is not None)
        if self._parted is not None:
            self._parting.move_to(self._parted)
        self.strip.show_tags("parting", self._parting_tags())

    def _parting_tags(self) -> list[Tag]:
        """Return the words at the step where the twins part."""
        if self._parted is None:
            return []
        return [Tag(self._parted, (f"first differ at step {self._parted:,}", "first differ"), "warning")]

    def own_data(self) -> str:
        lines = ["step,loss_difference,grad_norm_difference"]
        if self.twins is not None:
            columns = [
                self.twins.difference(name, self.twins.one.history, 0, self.twins.steps).tolist()
                for name in ("loss", "grad_norm")
            ]
            lines += [f"{step},{loss!r},{norm!r}" for step, (loss, norm) in enumerate(zip(*columns, strict=True))]
        return "\n".join(lines) + "\n"

    def legend(self) -> str:
        c = theme.colors
        parted = "the same bits so far" if self._parted is None else f"first differ at step {self._parted:,}"
        knob = f"in {self.twins.knob}, " if self.twins else ""
        loss = f"<span style='color:{c.accent}'>—— loss</span>"
        norm = f"<span style='color:{c.good}'>- - - gradient norm</span>"
        whole = f"{knob}{parted} &nbsp; {loss} &nbsp; {norm} · log"
        return whole if self.header.fits(whole) else f"{parted} &nbsp; {loss} &nbsp; {norm}"

    def reading(self, run: Run, step: int) -> str:
        if self.twins is None or step >= self.twins.steps:
            return "only one of the twins has made this step"
        loss, norm = (float(self._read(name, run.history, step, step + 1)[0]) for name in ("loss", "grad_norm"))
        return f"loss differs by {number(loss)}, gradient norm by {number(norm)}"

    def restyle(self) -> None:
        self._parting.setPen(QPen(theme.color("warning"), 0))
        super().restyle()

    def _read(self, name: str, history: History, start: int, stop: int) -> np.ndarray:
        assert self.twins is not None
        return self.twins.difference(name, history, start, stop)
