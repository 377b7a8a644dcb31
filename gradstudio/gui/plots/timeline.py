"""The run along its steps: how far it is, what was changed, where it broke."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from gradstudio.core.knobs import format_value
from gradstudio.core.text import plural
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run


class Timeline(StepPlot):
    title = "Timeline"
    left_values = False
    help = "How far the run is, the knobs that were changed on the way (circles), and the first non-finite step (cross)."

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, pg.AxisItem("left"))
        self._todo = pg.PlotCurveItem()
        self._done = pg.PlotCurveItem()
        self._dots = pg.ScatterPlotItem(symbol="o", size=10)
        self._cross = pg.ScatterPlotItem(symbol="x", size=12)
        for z, item in enumerate((self._todo, self._done, self._dots, self._cross)):
            item.setZValue(60 + z)
            self.plot.addItem(item, ignoreBounds=True)
        bottom = self.plot.getAxis("bottom")
        bottom.setStyle(showValues=True)
        bottom.setHeight(None)
        self.plot.showGrid(y=False)
        self.box.setYRange(0, 1, padding=0)
        self._follow = QPushButton("Show the whole run")
        self._follow.setProperty("role", "flat")
        self._follow.setToolTip("The plots show a part of the run and do not move on with it: press to follow it again (Home)")
        self._follow.clicked.connect(self._show_whole_run)
        self.header.addWidget(self._follow)
        steps.changed.connect(self._show_whether_following)
        self._show_whether_following()
        self.restyle()

    def _show_whether_following(self) -> None:
        self._follow.setVisible(not self.steps.following)

    def legend(self) -> str:
        if self.run is None:
            return ""
        changes = plural(len(self.run.timeline), "change", "changes")
        return f"{changes} · {len(self.run.history):,} of {self.run.experiment.run.steps:,} steps"

    def draw(self, run: Run) -> None:
        done = len(run.history)
        self._todo.setData([0, run.experiment.run.steps], [0.5, 0.5])
        self._done.setData([0, done], [0.5, 0.5])

    def _draw_marks(self, run: Run) -> None:
        super()._draw_marks(run)
        at = np.unique([change.step for change in list(run.timeline)]).astype(float) - 0.5
        self._dots.setData(at, np.full(len(at), 0.5))
        step = run.first_nonfinite_step
        self._cross.setData([] if step is None else [step], [] if step is None else [0.5])
        self._say(run)

    def restyle(self) -> None:
        for item, role in ((self._todo, "line"), (self._done, "accent")):
            pen = pg.mkPen(theme.color(role), width=5)
            pen.setCapStyle(Qt.PenCapStyle.FlatCap)
            item.setPen(pen)
        self._dots.setPen(pg.mkPen(theme.color("accent"), width=2))
        self._dots.setBrush(pg.mkBrush(theme.color("panel")))
        self._cross.setPen(pg.mkPen(theme.color("bad"), width=2))
        self._cross.setBrush(pg.mkBrush(theme.color("bad")))
        super().restyle()
        self.setFixedHeight(round(76 * theme.zoom))
        self.plot.getAxis("bottom").setHeight(None)

    def reading(self, run: Run, step: int) -> str:
        near = 0.012 * (self.steps.last - self.steps.first)  # about as wide as a mark
        changes = [change for change in list(run.timeline) if abs(change.step - step) <= near]
        texts = [f"{change.knob} = {format_value(change.value)} since step {change.step:,}" for change in changes]
        broke = run.first_nonfinite_step
        if broke is not None and abs(broke - step) <= near:
            texts.append(f"first non-finite step {broke:,}")
        return " · ".join(texts[-3:]) or "nothing changed"
