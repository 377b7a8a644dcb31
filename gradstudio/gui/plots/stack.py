"""All plots, one under the other, on one step axis."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from gradstudio.gui.plots.gradient_norm import GradientNormPlot
from gradstudio.gui.plots.layers import LayersPlot
from gradstudio.gui.plots.loss import LossPlot
from gradstudio.gui.plots.scale_and_rate import ScaleAndRatePlot
from gradstudio.gui.plots.shared import SHORTEST, Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.plots.timeline import Timeline
from gradstudio.session.run import Run
from gradstudio.session.simulator import Simulator

# Every how many calls a plot is drawn, and at which of them: loss and norm 15 times a second, the others 5 times.
TURNS = ((2, 0), (2, 1), (6, 0), (6, 3), (6, 5))


class PlotStack(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.step_cursor = StepRange(), Cursor()
        self.loss = LossPlot(self.steps, self.step_cursor)
        self.gradient_norm = GradientNormPlot(self.steps, self.step_cursor)
        self.layers = LayersPlot(self.steps, self.step_cursor)
        self.scale_and_rate = ScaleAndRatePlot(self.steps, self.step_cursor)
        self.timeline = Timeline(self.steps, self.step_cursor)
        self._run: Run | None = None
        self._beats = 0
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 10, 12, 8)
        layout.setSpacing(8)
        for plot, share in ((self.loss, 26), (self.gradient_norm, 28), (self.layers, 28), (self.scale_and_rate, 13), (self.timeline, 0)):
            layout.addWidget(plot, share)

    @property
    def plots(self) -> tuple[StepPlot, ...]:
        return (self.loss, self.gradient_norm, self.layers, self.scale_and_rate, self.timeline)

    def refresh(self, simulator: Simulator) -> None:
        """Show the simulator's run as it stands. While it trains, the plots take turns, for what a frame
        costs the training thread waits."""
        run = simulator.run
        if run is not self._run:
            self._run = run
            self.steps.most = max(1.05 * run.experiment.run.steps, SHORTEST)
            self.steps.fit(0)
        self.steps.follow(len(run.history))
        clipping = simulator.requested.clipping
        self.gradient_norm.show_limit(clipping.max_norm if clipping.kind in ("norm", "per_layer") else None)
        self._beats += 1
        for index, plot in enumerate(self.plots):
            if run.status != "running" or self._beats % TURNS[index][0] == TURNS[index][1]:
                plot.refresh(run)

    def fit(self) -> None:
        """Show the whole run and follow it again."""
        self.steps.fit(len(self._run.history) if self._run else 0)
