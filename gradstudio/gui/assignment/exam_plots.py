"""The plots of an exam: those of a run, without anything that reveals its knobs."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.gradient_norm import GradientNormPlot
from gradstudio.gui.plots.layers import LayersPlot
from gradstudio.gui.plots.loss import LossPlot
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.plots.scale_and_rate import ScaleAndRatePlot
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column
from gradstudio.session.record.run import Run


class ScalePlot(ScaleAndRatePlot):
    """The loss scale without the learning rate, which is a knob."""

    title = "Loss scale"
    help = "The factor on the loss under fp16, which halves at each overflow: the update is skipped, and marked."
    columns = ("scale", "skipped")
    with_rate = False


class ExamPlots(QWidget):
    """The visible part of a run in an exam: no knob, and no live change."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, cursor, source = StepRange(), Cursor(), RunSource()
        self._looked = cursor.looked
        self.plots: tuple[StepPlot, ...] = (
            LossPlot(self.steps, cursor, source, overlays := Overlays()),
            GradientNormPlot(self.steps, cursor, source, overlays),
            scale := ScalePlot(self.steps, cursor, source),
            layers := LayersPlot(self.steps, cursor),
        )
        self.scale = scale
        layers.frames_birth = False  # which would give the answer away
        scale.hide()  # until a run has one
        self._overlays = overlays
        column = in_column(of=self, margins=NO_MARGINS, spacing=8)
        for plot, share in zip(self.plots, (30, 28, 14, 28), strict=True):
            plot.marks.hides_changes = True
            plot.show_values("left", False)
            column.addWidget(plot, share)
        self.plots[-1].widget.write_steps()
        self._shown: tuple[Run | None, bool] = (None, False)  # and whether it was over

    def show_run(self, run: Run | None) -> None:
        if run is None:
            return
        self._looked.follow(run)
        if (run, run.over) != self._shown:
            self._shown = (run, run.over)
            self.steps.ended = run.over
            self.steps.fit(len(run.history))
        self.steps.follow(len(run.history))
        for plot in self.plots:
            if plot is self.scale:  # whose rows the plots before it have read
                plot.setVisible(self.scale.is_scaled(run))
            plot.refresh(run, self.devicePixelRatioF())
