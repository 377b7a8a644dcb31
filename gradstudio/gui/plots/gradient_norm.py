"""The gradient norm before and after clipping. Why look: it explodes before the loss does, and shows what clipping takes."""

from __future__ import annotations

import math

import pyqtgraph as pg
from PySide6.QtCore import Qt, Signal

from gradstudio.core.text import number
from gradstudio.gui.plots.axes import LogAxis
from gradstudio.gui.plots.series import Series, column, log10
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.step_plot import UNDER_TEXT, StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run


class GradientNormPlot(StepPlot):
    title = "Gradient norm (true: unscaled)"
    help = "L2 norm of the whole gradient, free of the loss scale, before clipping and as the optimizer saw it. It explodes before the loss does."

    max_norm_moved = Signal(float)

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, LogAxis("left"))
        self.before = Series(self.plot, column("grad_norm"), "accent", z=12)
        self.after = Series(self.plot, column("clipped_norm"), "good", dashed=True, marked=False)
        self.before.scale = self.after.scale = log10
        self.series = (self.before, self.after)
        self.limit = pg.InfiniteLine(angle=0, movable=True, label="", labelOpts={"position": 0.99, "anchors": [(1, 1), (1, 1)]})
        self.limit.setZValue(20)  # over the curves, for its label
        self.limit.sigDragged.connect(self._dragged)
        self.limit.sigPositionChangeFinished.connect(self._let_go)
        self.limit.setCursor(Qt.CursorShape.SizeVerCursor)
        self.plot.addItem(self.limit, ignoreBounds=True)
        self.limit.hide()
        self.restyle()

    def show_limit(self, max_norm: float | None) -> None:
        """The max_norm that clipping holds to, or None where the rule has no such limit."""
        self.limit.setVisible(max_norm is not None)
        if max_norm is not None and not self.limit.moving:
            self.limit.setPos(math.log10(max_norm))
            self.limit.label.setText(f"max_norm {number(max_norm)} ⇕")

    def legend(self) -> str:
        c = theme.colors
        marks = self.before.marks_legend()
        odd = f" &nbsp; {marks}" if marks else ""
        return f"<span style='color:{c.accent}'>—— before clipping</span> &nbsp; <span style='color:{c.good}'>- - - after</span>{odd} · log"

    def draw(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        found = [span for series in self.series if (span := series.range(first, last, above=3.0 if self.steps.following else math.inf))]
        if self.limit.isVisible():
            found.append((self.limit.value(), self.limit.value()))
        if found:
            self.set_y(min(low for low, _ in found), max(high for _, high in found), least=1.0)
        self.before.draw(run.history, first, last)
        self.after.draw(run.history, first, last)
        self.before.draw_marks(*self.box.viewRange()[1])

    def restyle(self) -> None:
        self.limit.setPen(pg.mkPen(theme.color("warning"), width=1, style=Qt.PenStyle.DotLine))
        self.limit.setHoverPen(pg.mkPen(theme.color("warning", 90), width=13))  # as wide as what can be grabbed
        self.limit.label.setColor(theme.color("warning"))
        self.limit.label.fill = pg.mkBrush(theme.color("plot", UNDER_TEXT))
        self.limit.label.setFont(theme.font(0.8))
        super().restyle()

    def nonfinite_mark(self, run: Run, step: int) -> str:
        norm = run.history.row(step)["grad_norm"]
        return f"{number(norm)}, after {number(run.history.row(step - 1)['grad_norm'])}" if step and norm - norm != 0 else ""

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        clipped = f" → {number(row['clipped_norm'])} after clipping" if row["clip_coef"] != 1 else ", not clipped"
        return f"norm {number(row['grad_norm'])}{clipped}"

    def _dragged(self) -> None:
        self.limit.label.setText(f"max_norm {number(10 ** self.limit.value())} ⇕")

    def _let_go(self) -> None:
        self.max_norm_moved.emit(float(f"{10 ** self.limit.value():.3g}"))
