"""Connects the page Memory to the simulator: footprints are computed only while the page is visible."""

from __future__ import annotations

import time
from functools import partial

from PySide6.QtCore import QObject

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import Cure
from gradstudio.gui.memory.memory_panel import MemoryPanel
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import Task
from gradstudio.gui.services.message_bar import Action
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.session import own_model
from gradstudio.session.footprint import budget, estimator
from gradstudio.session.footprint.estimator import Estimate
from gradstudio.session.footprint.process import FootprintProcess
from gradstudio.session.record.run import Run

WATCHED = "Only a run of the studio has knobs to work this out from; this one was watched in another program."
NOT_AGREED = "The studio file is run for that, and nobody has agreed to it yet: press Run, and you are asked."

FIRST = "Apply the first"  # of the change that would fit
DEBOUNCE = 0.25  # seconds without a change of knobs before the computation starts
QUEUE = "footprints"


class MemoryController(QObject):
    """Requests the footprint of the requested knobs, and makes the change that the user chooses."""

    def __init__(self, context: Context, panel: MemoryPanel) -> None:
        super().__init__(panel)
        self._simulator, self._controls, self._panel = context.simulator, context.controls, panel
        self._jobs, self._process = context.jobs, FootprintProcess()
        self._known: Estimate | None = (
            None  # the latest answer, perhaps for an earlier experiment than the requested one
        )
        self._wanted: Experiment | None = None
        self._wanted_at = 0.0
        self._working: Task | None = None
        self._watch = ChangeWatch()
        self._asked: tuple[Experiment, Experiment] | None = None  # the requested knobs, and those that represent them
        panel.seen_changed.connect(self.refresh)
        panel.cure_chosen.connect(self._apply)

    def refresh(self) -> None:
        """Request the footprint of the requested knobs, if the page is visible, and show what is known."""
        if not self._panel.in_sight:
            self._want(None)
            return
        requested = self._simulator.requested
        why = WATCHED if self._simulator.run.watched else NOT_AGREED if own_model.needs_agreement(requested) else ""
        if why:
            self._want(None)
            if self._watch.has_changed(why):
                self._panel.say_unknown(why)
            return
        experiment = self._alike(requested)
        self._want(experiment)
        self._show(requested, experiment)

    def way_out(self, run: Run) -> Action | None:
        """Return a change with which a run that was rejected for its memory would fit, as a button's label and action;
        None for any other run."""
        cures = budget.cures(run.in_force, run.to_come) if run.refused else ()
        return (FIRST, partial(self._apply, cures[0])) if cures else None

    @property
    def busy(self) -> bool:
        """Whether an answer is pending."""
        experiment, estimate = self._wanted, self._known
        return experiment is not None and (
            estimate is None or estimate.experiment != experiment or not estimate.complete
        )

    def stop(self) -> None:
        """End the process that computes footprints, until the page is visible again."""
        self._want(None)
        self._jobs.start("", lambda _: self._process.close(), queue=QUEUE, can_cancel=False)

    # ---- inside

    def _want(self, experiment: Experiment | None) -> None:
        """Compute this experiment once it has been unchanged for a while, replacing the previous request."""
        now = time.monotonic()
        if experiment != self._wanted:
            self._wanted, self._wanted_at = experiment, now
            if self._working is not None:
                self._working.cancel()
                self._working = None
        elif self.busy and self._working is None and now - self._wanted_at >= DEBOUNCE and experiment is not None:
            work = partial(self._work_out, experiment)
            self._working = self._jobs.start("", work, queue=QUEUE)

    def _work_out(self, experiment: Experiment, task: Task) -> None:
        for estimate in estimator.answers(self._process, experiment, lambda: task.cancelled):
            self._jobs.post(partial(self._learn, estimate))

    def _learn(self, known: Estimate) -> None:
        self._known = known
        if known.complete and known.experiment == self._wanted:
            self._working = None

    def _alike(self, requested: Experiment) -> Experiment:
        if self._asked is None or self._asked[0] is not requested:
            self._asked = (requested, budget.representative(requested))
        return self._asked[1]

    def _show(self, requested: Experiment, asked: Experiment) -> None:
        estimate = self._known
        current = estimate is not None and estimate.experiment == asked
        if not self._watch.has_changed(estimate, current, asked):
            return
        if estimate is None or not current:
            self._panel.say_working()
        elif estimate.footprint is None:
            self._panel.say_unknown(f"The memory of this experiment is not known: {estimate.problem}.")
        else:
            limit = requested.run.memory_budget
            self._panel.show_footprint(estimate.footprint, limit, estimate.cures, complete=estimate.complete)

    def _apply(self, cure: Cure) -> None:
        self._controls.set_together(cure.changes)
        self.refresh()
