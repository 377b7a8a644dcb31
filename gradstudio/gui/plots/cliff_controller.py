"""Connects the page of the cliff and the session: measures the viewed step in a thread, and caches the result."""

from __future__ import annotations

from PySide6.QtCore import QObject

from gradstudio.core.cliff import Cliff
from gradstudio.gui.plots.latest_sampler import LatestSampler
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.services.context import Context
from gradstudio.session.record.run import Run
from gradstudio.session.running.cliff_sampling import CliffSampler, step_to_look_at
from gradstudio.session.running.step_sampling import why_not

MOST = 32  # slices that are kept
Key = tuple[str, int]  # the oldest run with this step, and the step


class CliffController(QObject):
    def __init__(self, context: Context, plots: PlotStack) -> None:
        super().__init__(plots)
        self._simulator, self._looked = context.simulator, plots.looked
        self._page = plots.layer_card.cliff
        self._sampler = LatestSampler[CliffSampler](context.jobs)
        self._found: dict[Key, Cliff | str] = {}  # or why there is none
        self._wanted: Key | None = None  # at the previous refresh
        self._shown: tuple[str, Key] | None = None  # id of the run, and what is shown of it
        self._page.asked.connect(self._look_now)

    def refresh(self) -> None:
        """Measure the viewed step while the page is visible, and show the progress. Called some times a second."""
        run = self._simulator.run
        if not self._page.isVisible():
            self._sampler.stop()
            return
        self._take()
        reason = why_not(run) or ("" if len(run.history) else "Measured once the run has made a step.")
        self._page.look.setVisible(not reason and run.status == "running" and self._looked.at(run) is None)
        if reason:
            self._sampler.stop()
            self._show(None, reason)
            return
        key = self._key(run)
        if run.status != "running" or self._looked.at(run) is not None:
            if key == self._wanted:  # a moving cursor is not followed
                self._look(run, key)
            self._wanted = key
        elif self._shown is None or self._shown[0] != run.id:
            self._show(None, "Measured when the run stands, or with Look now.")
            return
        self._show_latest()

    def stop(self) -> None:
        """Stop measuring."""
        self._sampler.stop()

    # ---- inside

    def _key(self, run: Run) -> Key:
        asked = self._looked.at(run)
        step = step_to_look_at(run) if asked is None else min(max(asked, 0), len(run.history) - 1)
        return run.owner(step + 1), step

    def _look_now(self) -> None:
        run = self._simulator.run
        if len(run.history):
            self._look(run, self._key(run))
            self.refresh()

    def _look(self, run: Run, key: Key) -> None:
        """Measure a step, unless that is done or in progress."""
        self._shown = run.id, key
        latest = self._sampler.latest
        under_way = latest is not None and latest.step == key[1] and latest.looked_at is run
        if key not in self._found and not under_way:
            self._sampler.start(self._simulator.trained_by.cliff(run, key[1]))

    def _take(self) -> None:
        """Store the result of a thread that has ended."""
        ended = self._sampler.take_ended()
        if ended is not None and (ended.cliff is not None or ended.problem):
            while len(self._found) >= MOST:
                del self._found[next(iter(self._found))]
            key = ended.looked_at.owner(ended.step + 1), ended.step
            self._found[key] = ended.cliff if ended.cliff is not None and not ended.problem else ended.problem

    def _show_latest(self) -> None:
        key = self._shown[1] if self._shown is not None else None
        sample = self._found.get(key) if key is not None else None
        if isinstance(sample, str):
            self._show(None, f"Step {key[1] if key else 0:,}: {sample}")
        elif sample is not None:
            self._show(sample, "")
        elif (sampler := self._sampler.latest) is not None:
            at = sampler.at
            making = f"making step {at:,} again …" if at is not None and at < sampler.step else "measuring …"
            self._show(sampler.cliff, making)

    def _show(self, cliff: Cliff | None, note: str) -> None:
        clipping = self._simulator.requested.clipping
        self._page.show_cliff(cliff, note, clipping.max_norm, clips=clipping.kind == "norm")
