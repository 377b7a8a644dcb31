"""Connects the page of a layer and the session: looks into a step in a thread, and shows the result."""

from __future__ import annotations

from PySide6.QtCore import QObject

from gradstudio.core.layer_sample import LayerSample
from gradstudio.gui.plots.latest_sampler import LatestSampler
from gradstudio.gui.plots.layer_page import LayerPage
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.services.context import Context
from gradstudio.session.record.run import Run
from gradstudio.session.running.step_sampling import LayerSampler, why_not


class LayerController(QObject):
    def __init__(self, context: Context, plots: PlotStack) -> None:
        super().__init__(plots)
        self._simulator, self._plots = context.simulator, plots
        self._sampler = LatestSampler[LayerSampler](context.jobs)
        self._sample: LayerSample | None = None
        self._of: Run | None = None  # the run of the sample
        self._opened = False
        self._looked = plots.looked
        self._rests: tuple[int | None, bool] = (None, True)  # viewed step, and whether it was followed
        self._note = ""
        plots.made.connect(self._on_part_created)

    @property
    def _page(self) -> LayerPage:
        return self._plots.layer_page

    def _on_part_created(self, part: object) -> None:
        if isinstance(part, LayerPage):
            part.step_asked.connect(self.look)
            part.turned.connect(self._show)

    def look(self, step: int) -> None:
        """Look into a step of the run in the plots."""
        run = self._simulator.run
        self._sampler.stop()
        self._note = why_not(run)
        if not self._note and 0 <= step < len(run.history):
            self._sampler.start(self._simulator.trained_by.layers(run, step))
        self.refresh()

    def refresh(self) -> None:
        """Show the progress. Called some times a second."""
        if not self._plots.has("layer_page"):
            return
        run, opened = self._simulator.run, self._page.isVisible()
        if run is not self._of:
            self._of, self._sample, self._note = run, None, ""
            self._sampler.stop()
            self._page.mark_step(None)
            self._opened = False
        if opened and not self._opened and len(run.history) and run.status != "running" and self._sample is None:
            self._opened = True
            self.look(self._page.histograms.step.value())  # a paused run shows its state at once
            return
        self._opened = opened
        if not opened:
            self._sampler.stop()
            return
        self._follow_look()
        if (sampler := self._sampler.take_ended()) is not None:
            self._note = sampler.problem
            if sampler.sample is not None:
                self._sample = sampler.sample
                self._page.mark_step(sampler.step)
        self._show()

    def _follow_look(self) -> None:
        """Look into the viewed step, once it has settled."""
        step, (before, followed) = self._looked.step, self._rests
        if step != before:
            self._rests = (step, step is None)
        elif not followed and step is not None:
            self._rests = (step, True)
            self._page.histograms.step.setValue(step)
            self.look(step)

    def stop(self) -> None:
        """Stop measuring."""
        self._sampler.stop()

    # ---- inside

    def _show(self) -> None:
        self._page.histograms.show_of(self._sample, self._page.layer)
        self._page.histograms.say(self._words())

    def _words(self) -> str:
        sampler = self._sampler.latest
        if sampler is not None:
            at = sampler.at
            return f"making step {at:,} again …" if at is not None else f"looking into step {sampler.step:,} …"
        if self._note:
            return self._note
        if self._sample is None:
            return "Click a plot at the step to look into." if len(self._simulator.run.history) else ""
        return f"shown: step {self._sample.step:,}"
