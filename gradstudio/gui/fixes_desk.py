"""The fixes that are tried for the run in the plots: begun, ended and applied, between their panel and the simulator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from gradstudio.core.experiment import differing
from gradstudio.core.knobs import KnobError
from gradstudio.session import remedies
from gradstudio.session.remedies import Trial, Trials

if TYPE_CHECKING:
    from gradstudio.gui.window import Window
    from gradstudio.session.run import Run

EVERY = 0.15  # seconds from one look at the trials to the next


class FixesDesk(QObject):
    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._window, self._panel = window, window.happening.fixes
        self.trials: Trials | None = None
        self._leaving: list[Trials] = []  # told to stop, perhaps still in a step
        self._due = 0.0
        self._panel.apply_asked.connect(self.apply)
        self._panel.stop_asked.connect(self.stop)
        window.happening.fixes_asked.connect(self.begin)

    def refresh(self) -> None:
        """Many times a second: end the trials where another run has been taken up, and show how far they are."""
        trials, now = self.trials, time.monotonic()
        if trials is not None and self._window.simulator.run is not trials.tried:
            self.stop()
        if trials is not None and self._window.simulator.family.members.get(trials.tried.id) is not trials.tried:
            self.trials = trials = None
            self._panel.hide()
            self._panel.clear()
        if now < self._due:
            return
        self._due = now + EVERY
        run = self._window.simulator.run
        shown = trials is not None and self._belongs(trials)
        self._panel.setVisible(shown)
        if shown:
            self._panel.refresh()
        self._window.happening.offer_fixes(self._can_be_tried(run))

    def begin(self) -> None:
        """Try the fixes of the run in the plots."""
        run = self._window.simulator.run
        if not self._can_be_tried(run):
            return
        self.stop()
        self.trials = Trials(run, self._window.simulator.snapshots)
        self.trials.start()
        self._panel.take(self.trials)
        self._due = 0.0
        self.refresh()
        self._window.words.bring_into_view(self._panel)

    def stop(self) -> None:
        """Try no further; what is known stays."""
        if self.trials is not None and self.trials.is_alive():
            self.trials.stop()
            self._leaving = [*(each for each in self._leaving if each.is_alive()), self.trials]

    def apply(self, trial: Trial) -> None:
        """Go on with a fix: from where it was tried as a branch, or, where it acts on restart, from step 0."""
        trials, simulator = self.trials, self._window.simulator
        if trials is None or not self._belongs(trials):
            return
        self.stop()
        simulator.show(trials.tried)
        if not remedies.acts_live(trial.remedy):
            wanted = trials.tried.in_force.with_values(remedies.values(trial.remedy))
            for name, value in differing(simulator.requested, wanted).items():
                self._window.ask(name, value)
            self._window.restart()
            return
        try:
            simulator.rewind(trials.step)
        except KnobError as fault:
            self._window.message.show_error(str(fault))
            return
        self._window.ask_remedy(trial.remedy)
        simulator.play()
        self._window.refresh()

    def close(self, seconds: float) -> bool:
        """The window goes: stop, and wait so long at most; whether the thread has ended."""
        self.stop()
        end = time.monotonic() + seconds
        for each in self._leaving:
            each.join(max(end - time.monotonic(), 0))
        return not any(each.is_alive() for each in self._leaving)

    # ---- inside

    def _belongs(self, trials: Trials) -> bool:
        """Whether the run in the plots is the one whose fixes were tried, or branched from it."""
        run, tried = self._window.simulator.run, trials.tried
        return self._window.simulator.family.members.get(tried.id) is tried and (run is tried or tried.id in run.ancestors)

    def _can_be_tried(self, run: Run) -> bool:
        """Whether the run stands, has something to heal and something against it, and it is not known already what comes of that."""
        known = self.trials is not None and self.trials.tried is run and self.trials.length == len(run.history)
        stands = (run.over or run.status == "paused") and bool(run.environment)
        return stands and not known and remedies.broken(run) and len(remedies.candidates(run)) > 1
