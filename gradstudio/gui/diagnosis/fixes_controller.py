"""Connects the panel of fixes and the simulator: starts, stops and applies fixes for the run in the plots,
automatically if that run diverges, and lets the best one train on beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject

from gradstudio.core import ranks_allowed
from gradstudio.core.experiment import differing_values
from gradstudio.core.knobs import KnobError
from gradstudio.gui.diagnosis.diagnosis_panel import DiagnosisPanel
from gradstudio.gui.services.context import Context
from gradstudio.gui.user_settings import TWO_FUTURES
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.session import own_model
from gradstudio.session.course.lesson_progress import Progress
from gradstudio.session.files import crash_file
from gradstudio.session.record.run import Run
from gradstudio.session.running import fix_trials, remedy_trial
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.running.future_run import Future, FutureRun, differs_since
from gradstudio.session.running.remedy_trial import Trial

EVERY = 0.15  # seconds between two checks of the trials


class FixesController(QObject):
    def __init__(self, context: Context, diagnosis: DiagnosisPanel, lesson: Callable[[], Progress | None]) -> None:
        """`lesson`: the progress in the preset's lesson."""
        super().__init__(diagnosis)
        self._lesson, self._looked, self._jobs = lesson, context.looked, context.jobs
        self._simulator, self._controls, self._message = context.simulator, context.controls, context.message
        self._diagnosis, self._panel = diagnosis, diagnosis.findings.fixes
        self.trials: Trials | None = None
        self._stopped = False  # whether the user or another run has ended the trials
        self._begun_for = ("", 0)  # id and length of the run for which they started automatically
        self._best: FutureRun | None = None  # the best fix, which trains on
        # a future, since when it differs, and up to where both were compared
        self._apart: tuple[Run | None, int | None, int] = (None, None, 0)
        self._due = 0.0
        self._library = context.library.path
        self._crash, self._crash_of = None, ChangeWatch()  # the crash file of a watched run, and its run
        self._panel.apply_asked.connect(self.apply)
        self._panel.stop_asked.connect(self.stop)
        diagnosis.findings.fixes_asked.connect(self.begin)

    def refresh(self) -> None:
        """Show the progress of the trials; stop them if the plots show another run. Called many times a second."""
        trials, now = self.trials, time.monotonic()
        if trials is not None and self._simulator.run is not trials.tried:
            self.stop()
        if trials is not None and self._simulator.family.members.get(trials.tried.id) is not trials.tried:
            self.trials = self._controls.trials = self._best = trials = None
            self._apart = (None, None, 0)
            self._panel.hide()
            self._panel.clear()
        if now < self._due:
            return
        self._due = now + EVERY
        run = self._simulator.run
        if self._begins_by_itself(run):
            self._begun_for = (run.id, len(run.history))
            self._start(run)
            trials = self.trials
        self._go_on_with_the_best()
        shown = trials is not None and self._belongs(trials)
        looks = self._looked.step is not None  # at a step at which none of this was known
        self._panel.setVisible(shown and not looks)
        if shown:
            future = self.future
            self._panel.refresh(future.title if future is not None else "", self._has)
        self._look_for_crash(run)
        self._diagnosis.findings.offer_fixes(self._can_be_tried(run) and not looks, self._crash is not None)

    def begin(self) -> None:
        """Try the fixes of the run in the plots."""
        run = self._simulator.run
        if self._crash is not None:
            self._controls.file_asked.emit(str(self._crash))
        if not self._can_be_tried(run):
            return
        self._start(run)
        self._due = 0.0
        self.refresh()
        self._diagnosis.bring_into_view(self._panel)

    def stop(self) -> None:
        """Try no further fixes; keep the results."""
        self._stopped = True
        for thread in (self.trials, self._best):
            if thread is not None and thread.is_alive():
                self._jobs.leave(thread)

    @property
    def future(self) -> Future | None:
        """Return the future of the best fix so far, to draw beside the run that diverged; None if there is nothing to
        draw."""
        trials = self.trials
        best = trials.best if trials is not None and TWO_FUTURES.get() and self._simulator.run is trials.tried else None
        if trials is None or best is None or best.run is None:
            return None
        run, going = best.run, self._best
        if going is not None and going.trial is best and len(going.record.history) >= len(run.history):
            run = going.record
        if self._apart[0] is not run:
            self._apart = (run, None, best.from_step)
        if self._apart[1] is None:
            stop = min(len(trials.tried.history), len(run.history))
            self._apart = (run, differs_since(trials.tried, run, self._apart[2]), max(stop, best.from_step))
        since = "" if self._apart[1] is None else f", differs since step {self._apart[1]:,}"
        return Future(run, best.from_step, f"{remedy_trial.in_words(best.remedy)}{since}")

    def apply(self, trial: Trial) -> None:
        """Continue with a fix: as a branch from where it was tried, or from step 0 if it acts on restart."""
        trials, simulator = self.trials, self._simulator
        if trials is None or not self._belongs(trials):
            return
        self.stop()
        simulator.show(trials.tried)
        if not remedy_trial.acts_live(trial.remedy):
            experiment = trials.restarted_with(trial.remedy)
            for name, value in differing_values(simulator.requested, experiment).items():
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

    # ---- inside

    def _look_for_crash(self, run: Run) -> None:
        """Find the crash file of a watched run, in a job."""
        if not self._crash_of.has_changed(run, run.status, run.first_nonfinite_step):
            return
        self._crash = None
        if run.watched is not None:

            def use(path: Path | None) -> None:
                self._crash = path if self._simulator.run is run else self._crash

            self._jobs.start("", lambda _: crash_file.latest_of(self._library, run.id), use, queue="crash files")

    def _start(self, run: Run) -> None:
        self.stop()
        self._stopped, self._best = False, None
        self.trials = self._controls.trials = self._simulator.trained_by.trials(run)
        self.trials.start()
        self._panel.take(self.trials)

    def _begins_by_itself(self, run: Run) -> bool:
        """Return whether the run has just diverged here, and trying fixes would not answer an open question of the
        lesson."""
        if run.first_nonfinite_step is None or self._begun_for == (run.id, len(run.history)):
            return False
        lesson = self._lesson()
        return (
            run.over
            and TWO_FUTURES.get()
            and self._simulator.trained_here
            and self._can_be_tried(run)
            and not own_model.needs_agreement(run.experiment)
            and not (lesson is not None and lesson.still_asks(run))
        )

    def _go_on_with_the_best(self) -> None:
        """Let the best fix train on, once all were tried, at the speed of the window."""
        trials = self.trials
        if trials is None or self._stopped or self._best is not None or trials.is_alive() or not TWO_FUTURES.get():
            return
        if (best := trials.best) is not None and self._simulator.run is trials.tried:
            self._best = self._simulator.trained_by.future(trials, best, lambda: self._simulator.speed)
            self._best.start()

    def _belongs(self, trials: Trials) -> bool:
        """Return whether the run in the plots is the one whose fixes were tried, or a branch of it."""
        run, tried = self._simulator.run, trials.tried
        return self._simulator.family.members.get(tried.id) is tried and (run is tried or tried.id in run.ancestors)

    def _has(self, remedy: str) -> bool:
        """Return whether the run in the plots continues with a remedy."""
        run = self._simulator.run
        tried = self.trials is None or run is self.trials.tried
        return not tried and all(run.in_force[name] == value for name, value in remedy_trial.values(remedy).items())

    def _can_be_tried(self, run: Run) -> bool:
        """Return whether the run is paused or over, has diverged, and has remedies that were not tried yet."""
        trials = self.trials
        stale = trials is None or (trials.tried is run and trials.length != len(run.history))
        known = trials is not None and not stale and (trials.tried is run or (not run.own and self._belongs(trials)))
        stands = (
            (run.over or run.status == "paused") and bool(run.environment) and self._controls.possible.is_trained_here
        )
        if ranks_allowed.several(run.experiment):
            return False
        return stands and not known and fix_trials.broken(run) and len(remedy_trial.candidates(run)) > 1
