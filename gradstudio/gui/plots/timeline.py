"""The run along its steps: how far it is, what was changed, where it broke."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGraphicsRectItem, QPushButton

from gradstudio.core.knobs import format_value
from gradstudio.core.text import plural
from gradstudio.gui.plots.axes import Axis
from gradstudio.gui.plots.canvas import Marks
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot, changed_at
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run

THICK = 5  # px


class Timeline(StepPlot):
    title = "Timeline"
    left_values = False
    help = "How far the run is, the knobs that were changed on the way (circles), and the first non-finite step (cross)."

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, Axis("left"))
        self._todo, self._done = QGraphicsRectItem(self.canvas.columns), QGraphicsRectItem(self.canvas.columns)
        for z, item in enumerate((self._todo, self._done)):
            item.setPen(Qt.PenStyle.NoPen)
            item.setZValue(60 + z)
        self._dots = Marks(self.canvas, "o", 10, z=62)
        self._cross = Marks(self.canvas, "x", 12, z=63)
        bottom = self.plot.getAxis("bottom")
        bottom.linkToView(self.box)
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
        self._draw_bars()

    def _place_labels(self) -> None:
        super()._place_labels()
        self._draw_bars()

    def _draw_bars(self) -> None:
        """The steps there are to do, and those that are done."""
        if self.run is not None:
            top = round((self.canvas.size[1] - THICK) / 2)
            self._todo.setRect(0, top, self.run.experiment.run.steps, THICK)
            self._done.setRect(0, top, len(self.run.history), THICK)

    def _draw_marks(self, run: Run) -> None:
        super()._draw_marks(run)
        self._dots.show_at(changed_at(run))
        step = run.first_nonfinite_step
        self._cross.show_at(np.array([] if step is None else [step], float))
        self._say(run)

    def restyle(self) -> None:
        for item, role in ((self._todo, "line"), (self._done, "accent")):
            item.setBrush(theme.color(role))
        self._dots.dress(theme.color("accent"), theme.color("panel"))
        self._cross.dress(theme.color("bad"), theme.color("bad"))
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
