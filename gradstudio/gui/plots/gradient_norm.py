"""The gradient norm before and after clipping. Why look: it explodes before the loss does, and shows what clipping takes."""

from __future__ import annotations

import math
import time

import pyqtgraph as pg
from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QPen
from PySide6.QtWidgets import QGraphicsLineItem

from gradstudio.core.text import number
from gradstudio.gui.plots.axes import LogAxis
from gradstudio.gui.plots.canvas import Canvas, Label, leave_unpainted
from gradstudio.gui.plots.overlay import Overlays
from gradstudio.gui.plots.series import Series, joined, log10
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.source import RunSource
from gradstudio.gui.plots.step_plot import UNDER_TEXT, StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.hints import advised_max_norm, share_over
from gradstudio.session.run import Run

ADVISE_EVERY = 2.0  # seconds


class Limit(pg.InfiniteLine):
    """A line to drag: pyqtgraph's for the mouse, with a line and a label of Qt's own to be seen."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(angle=0, movable=True)
        leave_unpainted(self)
        self._canvas = canvas
        self._line = QGraphicsLineItem(canvas.frame)
        self.label = Label(canvas, z=20)
        self.setZValue(20)  # over the curves, for its label
        self._line.setZValue(20)
        self.setCursor(Qt.CursorShape.SizeVerCursor)
        self._usual = self._hovered = QPen()
        self.sigPositionChanged.connect(self.follow)
        canvas.box.sigTransformChanged.connect(self.follow)

    def dress(self) -> None:
        """Take on the colours of the theme."""
        warning = theme.color("warning")
        self._usual = QPen(warning, 0, Qt.PenStyle.DotLine)
        self._hovered = QPen(theme.color("warning", 90), 13)  # as wide as what can be grabbed
        self.setHoverPen(self._hovered)
        self.label.dress(warning, theme.color("plot", UNDER_TEXT), theme.font(0.8))
        self.follow()

    def show_at(self, value: float | None, text: str) -> None:
        """Stand at a value, or nowhere."""
        for item in (self, self._line, self.label):
            if item.isVisible() != (value is not None):
                item.setVisible(value is not None)
        if value is not None:
            self.setPos(value)
            self.write(text)

    def write(self, text: str) -> None:
        if text != self.label.toPlainText():
            self.label.setText(text)
            self.follow()

    def setMouseHover(self, hover: bool) -> None:
        super().setMouseHover(hover)
        self.follow()

    def follow(self) -> None:
        """Bring what is seen to where the mouse finds it."""
        y = self._canvas.data.transform().map(QPointF(0, self.value())).y()
        width = self._canvas.size[0]
        self._line.setLine(0, y, width, y)
        self._line.setPen(self._hovered if self.mouseHovering else self._usual)
        self.label.place(0.99 * width, y, (1, 1))


class GradientNormPlot(StepPlot):
    title = "Gradient norm (true: unscaled)"
    help = "L2 norm of the whole gradient, free of the loss scale, before clipping and as the optimizer saw it. It explodes before the loss does."

    max_norm_moved = Signal(float)

    columns = ("grad_norm", "clipped_norm", "clip_coef")
    y_scale = staticmethod(log10)

    def __init__(self, steps: StepRange, cursor: Cursor, source: RunSource, overlays: Overlays) -> None:
        super().__init__(steps, cursor, LogAxis("left"))
        self.before = Series(self.canvas, source, "grad_norm", "accent", z=12)
        self.after = Series(self.canvas, source, "clipped_norm", "good", dashed=True, marked=False)
        self.before.scale = self.after.scale = log10
        self.series = (self.before, self.after)
        self._coefficient = source.names.index("clip_coef")
        self.limit = Limit(self.canvas)
        self.limit.sigDragged.connect(self._dragged)
        self.limit.sigPositionChangeFinished.connect(self._let_go)
        self.plot.addItem(self.limit, ignoreBounds=True)
        self._limit: tuple[float | None, bool] = (-1.0, False)  # that is shown, and whether it is only advised
        self._advised = False
        self._advise_at = 0.0
        self.take_over(overlays, "grad_norm", "grad_norm")
        self.show_limit(None)
        self.restyle()

    def show_limit(self, max_norm: float | None, *, advised: bool = False) -> None:
        """The max_norm that clipping holds to; or, `advised`, one that would clip only the outliers, where nothing is clipped. None where
        the rule has no such limit."""
        if self.limit.moving or (max_norm, advised) == self._limit:
            return
        self._limit, self._advised = (max_norm, advised), advised
        self.limit.show_at(None if max_norm is None else math.log10(max_norm), self._limit_text(max_norm or 1.0))
        self.look_again()
        self.redraw()

    def advise(self) -> None:
        """Show the limit that the run's own norms advise; it moves only where they say another one by far."""
        now = time.monotonic()
        if now < self._advise_at or self.run is None:
            return
        self._advise_at = now + ADVISE_EVERY
        advised, shown = advised_max_norm(self.run), self._limit[0] if self._advised else None
        if advised is None or shown is None or not 0.8 < advised / shown < 1.25:
            self.show_limit(advised, advised=True)
        elif not self.limit.moving:
            self.limit.write(self._limit_text(shown))  # the share has moved on

    def _limit_text(self, max_norm: float) -> str:
        share = (
            f" would clip {number(100 * share_over(self.run, max_norm), 2)} %"
            if self.run is not None and (self._advised or self.limit.moving)
            else ""
        )
        return f"max_norm {number(max_norm)}{share} ⇕"

    def legend(self) -> str:
        c = theme.colors
        marks = self.before.marks_legend()
        odd = f" &nbsp; {marks}" if marks else ""
        return f"<span style='color:{c.accent}'>—— before clipping</span> &nbsp; <span style='color:{c.good}'>- - - after</span>{odd} · log"

    def fit_y(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        above = 3.0 if self.steps.following else math.inf
        limit = (self.limit.value(), self.limit.value()) if self.limit.isVisible() else None
        spans = [series.range(first, last, above=above) for series in self._drawn()]
        if found := joined(*spans, limit, self.overlay.range(first, last, log10, above=above)):
            self.set_y(*found, least=1.0)

    def draw(self, run: Run) -> None:
        first, last = self.steps.first, self.steps.last
        for series in self._drawn():
            series.draw(run.history, first, last)
        self.before.draw_marks()

    def _drawn(self) -> tuple[Series, ...]:
        """Both, once any step was clipped: until then the one lies under the other, unseen."""
        envelope = self.before.envelope
        coefficients = envelope.least[self._coefficient], envelope.greatest[self._coefficient]
        return self.series if coefficients not in ((1.0, 1.0), (math.inf, -math.inf)) else self.series[:1]

    def restyle(self) -> None:
        self.limit.dress()
        super().restyle()

    def nonfinite_mark(self, run: Run, step: int) -> str:
        norm = run.history.row(step)["grad_norm"]
        return f"{number(norm)}, after {number(run.history.row(step - 1)['grad_norm'])}" if step and norm - norm != 0 else ""

    def reading(self, run: Run, step: int) -> str:
        row = run.history.row(step)
        clipped = f" → {number(row['clipped_norm'])} after clipping" if row["clip_coef"] != 1 else ", not clipped"
        return f"norm {number(row['grad_norm'])}{clipped}"

    def _dragged(self) -> None:
        self.limit.write(self._limit_text(10 ** self.limit.value()))

    def _let_go(self) -> None:
        self._limit = (-1.0, False)  # whatever comes of it is shown
        self.max_norm_moved.emit(float(f"{10 ** self.limit.value():.3g}"))
