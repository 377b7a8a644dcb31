"""Connects the pictures of a recurrent network's time steps and the session: measures them in a thread, those of a step
while the run is paused or a past step is viewed, and their map over training while it stands."""

from __future__ import annotations

from PySide6.QtCore import QObject

from gradstudio.core.time_steps import TimeSteps, recurs
from gradstudio.gui.plots.latest_sampler import LatestSampler
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.plots.time_map import NOT_RECURRENT, WAITS
from gradstudio.gui.services.context import Context
from gradstudio.session.record.run import Run
from gradstudio.session.running.step_sampling import TimeMapSampler, TimeStepSampler, why_not

MOST = 256  # cached samples
Key = tuple[str, int]  # the oldest run with this step, and the step


class TimeStepController(QObject):
    def __init__(self, context: Context, plots: PlotStack) -> None:
        super().__init__(plots)
        self._simulator, self._looked, self._page = context.simulator, plots.looked, plots.layer_card.network
        self._layers = plots.layers
        self._sampler = LatestSampler[TimeStepSampler](context.jobs)
        self._maps = LatestSampler[TimeMapSampler](context.jobs)
        self._mapped: tuple[Run, int] | None = None  # the run whose map is on view, and its last step
        self._found: dict[Key, TimeSteps | None] = {}  # None: it cannot be measured

    def refresh(self) -> None:
        """Measure what is on view and missing. Called some times a second."""
        run = self._simulator.run
        possible = recurs(run.history.layers) and not why_not(run)
        self._refresh_page(run, possible)
        self._refresh_map(run, possible)

    def stop(self) -> None:
        """Stop measuring."""
        self._sampler.stop()
        self._maps.stop()

    # ---- inside

    def _refresh_map(self, run: Run, possible: bool) -> None:
        plot, last = self._layers, len(run.history) - 1
        plot.offer_time_map(possible)
        if self._mapped is not None and self._mapped[0] is not run:
            self._mapped = None
        if not (possible and plot.isVisible() and plot.along_time and run.status != "running" and last >= 0):
            self._maps.stop()
            if self._mapped is None:
                plot.show_time_map(None, WAITS if possible or last < 0 else why_not(run) or NOT_RECURRENT)
            return
        if (ended := self._maps.take_ended()) is not None and (ended.sample is not None or ended.problem):
            self._mapped = ended.looked_at, ended.step
            plot.show_time_map(ended.sample, ended.problem or WAITS)
        latest = self._maps.latest
        if latest is not None and (latest.looked_at, latest.step) != (run, last):
            self._maps.stop()
        elif latest is None and self._mapped != (run, last):
            self._maps.start(self._simulator.trained_by.time_map(run, last))
        elif latest is not None and plot.time_map.map is None:
            plot.show_time_map(None, f"measuring, at step {latest.at or 0:,} of {last:,}")

    def _refresh_page(self, run: Run, possible: bool) -> None:
        """Measure the visible step if it is missing, and pass it to the page."""
        stands = run.status != "running" or self._looked.at(run) is not None
        if not self._page.isVisible() or not stands or not possible:
            self._sampler.stop()
            self._page.show_time_steps(None, possible=possible)
            return
        self._take()
        key = self._key(run, self._page.step_of(run))
        latest = self._sampler.latest
        if key not in self._found and (latest is None or (latest.looked_at, latest.step) != (run, key[1])):
            if latest is None:  # a moving step is not followed until the previous one is done
                self._sampler.start(self._simulator.trained_by.time_steps(run, key[1]))
            elif latest.looked_at is not run:
                self._sampler.stop()
        if key in self._found:
            self._page.show_time_steps(self._found[key], possible=True)

    def _key(self, run: Run, step: int) -> Key:
        return run.owner(step + 1), step

    def _take(self) -> None:
        """Store the result of a thread that has ended."""
        ended = self._sampler.take_ended()
        if ended is not None and (ended.sample is not None or ended.problem):
            while len(self._found) >= MOST:
                del self._found[next(iter(self._found))]
            self._found[self._key(ended.looked_at, ended.step)] = ended.sample
