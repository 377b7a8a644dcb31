"""Connects the page of the network and the session: measures the time steps of a recurrent network in a thread, while
the run is paused or a past step is viewed."""

from __future__ import annotations

from PySide6.QtCore import QObject

from gradstudio.core.time_steps import TimeSteps, recurs
from gradstudio.gui.plots.latest_sampler import LatestSampler
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.services.context import Context
from gradstudio.session.record.run import Run
from gradstudio.session.running.step_sampling import TimeStepSampler, why_not

MOST = 256  # cached samples
Key = tuple[str, int]  # the oldest run with this step, and the step


class TimeStepController(QObject):
    def __init__(self, context: Context, plots: PlotStack) -> None:
        super().__init__(plots)
        self._simulator, self._looked, self._page = context.simulator, plots.looked, plots.layer_card.network
        self._sampler = LatestSampler[TimeStepSampler](context.jobs)
        self._found: dict[Key, TimeSteps | None] = {}  # None: it cannot be measured

    def refresh(self) -> None:
        """Measure the visible step if it is missing, and pass it to the page. Called some times a second."""
        run = self._simulator.run
        stands = run.status != "running" or self._looked.at(run) is not None
        possible = recurs(run.history.layers) and not why_not(run)
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

    def stop(self) -> None:
        """Stop measuring."""
        self._sampler.stop()

    # ---- inside

    def _key(self, run: Run, step: int) -> Key:
        return run.owner(step + 1), step

    def _take(self) -> None:
        """Store the result of a thread that has ended."""
        ended = self._sampler.take_ended()
        if ended is not None and (ended.sample is not None or ended.problem):
            while len(self._found) >= MOST:
                del self._found[next(iter(self._found))]
            self._found[self._key(ended.looked_at, ended.step)] = ended.sample
