"""Connects the page Memory to the simulator: footprints are worked out only while a person looks at the page."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import Cure
from gradstudio.gui.memory.memory_panel import MemoryPanel
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.message_bar import Action
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.session import own_model
from gradstudio.session.footprint import budget
from gradstudio.session.footprint.estimator import Estimator
from gradstudio.session.record.run import Run

WATCHED = "Only a run of the studio has knobs to work this out from; this one was watched in another program."
NOT_AGREED = "The studio file is run for that, and nobody has agreed to it yet: press Run, and you are asked."

FIRST = "Apply the first"  # of what the message says would fit


class MemoryController(QObject):
    """Asks for the footprint of the requested knobs, and makes the change that a person chooses."""

    def __init__(self, context: Context, panel: MemoryPanel) -> None:
        super().__init__(panel)
        self._simulator, self._controls, self._panel = context.simulator, context.controls, panel
        self._estimator = Estimator()
        self._watch = ChangeWatch()
        self._asked: tuple[Experiment, Experiment] | None = None  # the requested knobs, and those that stand for them
        panel.seen_changed.connect(self.refresh)
        panel.cure_chosen.connect(self._apply)

    def refresh(self) -> None:
        """Ask for what the requested knobs take, where the page is in sight, and show what is known."""
        if not self._panel.in_sight:
            self._estimator.cancel()
            return
        requested = self._simulator.requested
        why = WATCHED if self._simulator.run.watched else NOT_AGREED if own_model.needs_agreement(requested) else ""
        if why:
            self._estimator.cancel()
            if self._watch.changed(why):
                self._panel.say_unknown(why)
            return
        asked = self._alike(requested)
        self._estimator.ask(asked)
        self._show(requested, asked)

    def way_out(self, run: Run) -> Action | None:
        """Return what would make a run fit that was refused for its memory, as a button's label and what it does; None
        for any other run."""
        cures = budget.cures(run.in_force, run.to_come) if run.refused else ()
        return (FIRST, partial(self._apply, cures[0])) if cures else None

    @property
    def busy(self) -> bool:
        """Whether an answer is to come."""
        return self._estimator.busy

    def rest(self, seconds: float) -> bool:
        """End that process until the page is seen again. Return whether it has ended within so many seconds."""
        return self._estimator.rest(seconds)

    def close(self, seconds: float) -> bool:
        """End the process that works footprints out. Return whether it has ended within so many seconds."""
        return self._estimator.close(seconds)

    # ---- inside

    def _alike(self, requested: Experiment) -> Experiment:
        if self._asked is None or self._asked[0] is not requested:
            self._asked = (requested, budget.alike(requested))
        return self._asked[1]

    def _show(self, requested: Experiment, asked: Experiment) -> None:
        known = self._estimator.known
        current = known is not None and known.experiment == asked
        if not self._watch.changed(known, current, asked):
            return
        if known is None or not current:
            self._panel.say_working()
        elif known.footprint is None:
            self._panel.say_unknown(f"The memory of this experiment is not known: {known.problem}.")
        else:
            limit = requested.run.memory_budget
            self._panel.show_footprint(known.footprint, limit, known.cures, complete=known.complete)

    def _apply(self, cure: Cure) -> None:
        self._controls.set_together(cure.changes)
        self.refresh()
