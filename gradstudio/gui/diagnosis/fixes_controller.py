"""Between the panel of fixes and the simulator: begins, stops and applies fixes for the run in the plots."""

from __future__ import annotations

import time
from weakref import WeakSet

from PySide6.QtCore import QObject

from gradstudio.core import ranks_allowed
from gradstudio.core.experiment import differing
from gradstudio.core.knobs import KnobError
from gradstudio.gui.diagnosis.diagnosis_panel import DiagnosisPanel
from gradstudio.gui.services.context import Context
from gradstudio.session.record.run import Run
from gradstudio.session.running import fix_trials
from gradstudio.session.running.fix_trials import Trial, Trials

EVERY = 0.15  # seconds between two looks at the trials


class FixesController(QObject):
    def __init__(self, context: Context, diagnosis: DiagnosisPanel) -> None:
        super().__init__(diagnosis)
        self._simulator, self._controls, self._message = context.simulator, context.controls, context.message
        self._diagnosis, self._panel = diagnosis, diagnosis.findings.fixes
        self.trials: Trials | None = None
        self._leaving = WeakSet[Trials]()  # told to stop, perhaps still in a step; those that ended are freed
        self._due = 0.0
        self._panel.apply_asked.connect(self.apply)
        self._panel.stop_asked.connect(self.stop)
        diagnosis.findings.fixes_asked.connect(self.begin)

    def refresh(self) -> None:
        """Show how far the trials are; stop them where the plots show another run. Called many times a second."""
        trials, now = self.trials, time.monotonic()
        if trials is not None and self._simulator.run is not trials.tried:
            self.stop()
        if trials is not None and self._simulator.family.members.get(trials.tried.id) is not trials.tried:
            self.trials = self._controls.trials = trials = None
            self._panel.hide()
            self._panel.clear()
        if now < self._due:
            return
        self._due = now + EVERY
        run = self._simulator.run
        shown = trials is not None and self._belongs(trials)
        self._panel.setVisible(shown)
        if shown:
            self._panel.refresh()
        self._diagnosis.findings.offer_fixes(self._can_be_tried(run))

    def begin(self) -> None:
        """Try the fixes of the run in the plots."""
        run = self._simulator.run
        if not self._can_be_tried(run):
            return
        self.stop()
        self.trials = self._controls.trials = Trials(run, self._simulator.snapshots)
        self.trials.start()
        self._panel.take(self.trials)
        self._due = 0.0
        self.refresh()
        self._diagnosis.bring_into_view(self._panel)

    def stop(self) -> None:
        """Try no further fixes; keep the results."""
        if self.trials is not None and self.trials.is_alive():
            self.trials.stop()
            self._leaving.add(self.trials)

    def apply(self, trial: Trial) -> None:
        """Continue with a fix: as a branch from where it was tried, or from step 0 where it acts on restart."""
        trials, simulator = self.trials, self._simulator
        if trials is None or not self._belongs(trials):
            return
        self.stop()
        simulator.show(trials.tried)
        if not fix_trials.acts_live(trial.remedy):
            wanted = trials.restarted_with(trial.remedy)
            for name, value in differing(simulator.requested, wanted).items():
                self._controls.set_knob(name, value)
            self._controls.restart()
            return
        try:
            simulator.rewind(trials.step)
        except KnobError as fault:
            self._message.show_error(str(fault))
            return
        self._controls.apply_remedy(trial.remedy)
        simulator.play()
        self._controls.refresh_asked.emit()

    def close(self, seconds: float) -> bool:
        """Stop before the window closes; wait so many seconds at most and return whether the threads have ended."""
        self.stop()
        end = time.monotonic() + seconds
        for each in self._leaving:
            each.join(max(end - time.monotonic(), 0))
        return not any(each.is_alive() for each in self._leaving)

    # ---- inside

    def _belongs(self, trials: Trials) -> bool:
        """Return whether the run in the plots is the one whose fixes were tried, or a branch of it."""
        run, tried = self._simulator.run, trials.tried
        return self._simulator.family.members.get(tried.id) is tried and (run is tried or tried.id in run.ancestors)

    def _can_be_tried(self, run: Run) -> bool:
        """Return whether the run stands, has diverged, and has remedies that were not tried yet."""
        known = self.trials is not None and self.trials.tried is run and self.trials.length == len(run.history)
        stands = (run.over or run.status == "paused") and bool(run.environment) and self._controls.led_here
        if ranks_allowed.several(run.experiment):
            return False
        return stands and not known and fix_trials.broken(run) and len(fix_trials.candidates(run)) > 1
