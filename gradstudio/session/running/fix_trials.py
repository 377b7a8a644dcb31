"""Trying fixes: a run continues from its last healthy step, once for each remedy and once without a change.

Every trial has the same seed and batches. The remedies are ranked by their results."""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING

import numpy as np

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.knobs import Value
from gradstudio.core.text import plural
from gradstudio.session.record import branches
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import LATEST, is_critical, is_useless, mean_of_latest, rises, scores
from gradstudio.session.record.snapshots import KeptSnapshot, Snapshots
from gradstudio.session.running.remedy_trial import Outcome, Trial, acts_live, candidates, ranking, values
from gradstudio.session.running.run_driver import RunDriver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradstudio.engine.trainer import Trainer

HORIZON = 100  # steps of each trial, at least
TIMES = 2  # a trial makes this many times the steps from its start to where the run broke, if that is more
EARLY = LOOK_EVERY  # a run that broke within its first steps may have had no healthy one
BEFORE = 20  # a trial of a run that stayed finite starts this many steps before its finding
LOOKED_FOR = 1000  # steps within which such a finding must reappear without a change


def broken(run: Run) -> bool:
    """Return whether the run diverged or has a critical finding."""
    return run.first_nonfinite_step is not None or is_critical(run)


def starting_step(run: Run) -> int:
    """Return the step from which the trials continue: the last healthy one, or step 0 if the harm was done in the first
    EARLY steps; but no earlier than the last change before the run broke, so that every trial has that change."""
    broke = run.first_nonfinite_step
    if broke is None:
        critical = [
            finding.first_step
            for finding in (*ranked_findings(run), *list(run.findings.values()))
            if finding.severity == "critical"
        ]
        broke = min(critical, default=len(run.history))
        step = max(broke - BEFORE, 0) if broke >= EARLY else 0
    else:
        step = (branches.last_healthy_step(run) or 0) if broke >= EARLY else 0
    return max([step, *(change.step for change in list(run.timeline) if change.step <= broke)])


class Trials(threading.Thread):
    """Tries one remedy after the other, with its own trainers, so that other training is not disturbed. Any thread may
    read it."""

    def __init__(self, run: Run, snapshots: Snapshots, remedies: Iterable[str] | None = None) -> None:
        """`snapshots` of the run are read; nothing is added to them. `remedies` replace those that the run's findings
        offer."""
        super().__init__(name=f"training fixes of {run.id}", daemon=True)
        self.tried, self.step = run, starting_step(run)
        self.length = len(run.history)  # steps that the run had made when the trials began
        offered = candidates(run) if remedies is None else remedies
        # first without a change: it is the reference for effects
        self.trials = [Trial(remedy) for remedy in dict.fromkeys(("", *offered))]
        self.now: Trial | None = None
        self.failure = ""  # the traceback of a program error, for those who want the details
        self._finite = run.first_nonfinite_step is None
        self._begun = _begun_with(run)
        self._planned = tuple(sorted((*run.planned, *run.asked), key=lambda change: change.step))
        self._family, self._snapshots = snapshots, _BorrowedSnapshots(snapshots)
        self._trainer: Trainer | None = None  # of the run's family; the next live remedy continues with it
        self._stopping = False

    @property
    def over(self) -> bool:
        """True once every trial has an outcome."""
        return all(trial.outcome is not None for trial in self.trials)

    @property
    def best_first(self) -> list[Trial]:
        """The trials, the best first."""
        return ranking(self.trials)

    @property
    def end(self) -> int:
        """Number of steps after which an unbroken trial ends."""
        unchanged = self.trials[0]
        broke = self.tried.first_nonfinite_step if unchanged.broke_at is None else unchanged.broke_at
        # it remains to be seen where the finding becomes critical again
        if broke is None and unchanged.outcome is None:
            wanted = min(self.step + LOOKED_FOR, max(self.length, self.step + HORIZON))
        else:
            wanted = self.step + max(HORIZON, 0 if broke is None else TIMES * (broke + 1 - self.step))
        return min(wanted, self.tried.experiment.run.steps)

    @property
    def progress(self) -> str:
        """The progress of the current trial, in words."""
        trial = self.now
        if trial is None or trial.run is None:
            return ""
        again, count = trial.run.replayed, len(trial.run.history)
        return f"rewinding to step {count:,}: {again:,}" if again is not None else f"step {count:,} of {self.end:,}"

    def restarted_with(self, remedy: str) -> Experiment:
        """Return the values with which a restart with the remedy begins; KnobError if they do not go together."""
        return self._begun.with_values(values(remedy))

    def run_with(self, remedy: str) -> Run:
        """Return a new run that continues with the remedy: a branch, or one from step 0 if it acts on restart."""
        return branches.fork(self.tried, self.step) if acts_live(remedy) else self._from_the_start(remedy)

    def borrow_snapshots(self) -> Snapshots:
        """Return a copy of the family's snapshots to continue from; additions do not reach the family."""
        return _BorrowedSnapshots(self._family)

    @property
    def best(self) -> Trial | None:
        """The best fix so far that held and learns; None if there is none."""
        first = self.best_first[0]
        return first if first.is_healed and first.remedy else None

    def stop(self) -> None:
        """Make no more steps; any thread may call this. Results so far stay."""
        self._stopping = True

    def abandon(self) -> None:
        """Mark the remaining trials as not tried, though a step still blocks the thread. Only for a program that ends
        right after."""
        for trial in self.trials:
            trial.outcome = trial.outcome or "not tried"

    def run(self) -> None:
        """Try one remedy after the other."""
        try:
            for trial in self.trials:
                if not self._stopping:
                    self._try(trial)
                    self.now = None
        finally:
            self.abandon()
            self._trainer = None  # free the model
            self._snapshots = _BorrowedSnapshots(Snapshots())

    # ---- inside

    def _try(self, trial: Trial) -> None:
        """Try one remedy. Any exception makes the trial fail."""
        started = time.perf_counter()
        try:
            outcome = self._train(trial, values(trial.remedy))
        except Exception as fault:  # KnobError for values that do not go together, and anything unforeseen
            outcome, trial.message, self.failure = "failed", str(fault) or type(fault).__name__, traceback.format_exc()
        trial.seconds = time.perf_counter() - started
        trial.outcome = outcome

    def _train(self, trial: Trial, wanted: dict[str, Value]) -> Outcome:
        """Train with the remedy until it breaks or `end` is reached, and return the outcome."""
        live = acts_live(trial.remedy)
        run = self.run_with(trial.remedy)
        trial.from_step = self.step if live else 0
        trial.run, self.now = run, trial
        self._snapshots.wanted = True
        driver = RunDriver(run, self._snapshots)
        driver.begin(self._trainer if live else None, lambda: self._stopping)
        if live:
            self._keep(driver)
        self._snapshots.wanted = False  # a trial that breaks is not investigated
        if live and driver.outcome is None and not self._stopping:
            driver.change_as_planned()
            for name, value in wanted.items():
                driver.change(name, value)
        driver.train(lambda: self._goes_on(trial, driver))
        if driver.outcome is None and not self._stopping and run.first_nonfinite_step is None:
            trial.accuracy = driver.test_accuracy()
        driver.end(leaving=True)
        if trial.accuracy is None and run.accuracy is not None:
            trial.accuracy = run.accuracy
        if live:
            self._trainer = driver.trainer  # none if an error left it within a step
        return self._judge(trial, run, driver)

    def _goes_on(self, trial: Trial, driver: RunDriver) -> bool:
        """Return whether a trial continues: it has not broken, and has steps to make."""
        driver.settle()  # its rows show where it ends
        run = driver.run
        if len(run.history) >= self.end or run.refusals or run.first_nonfinite_step is not None:
            return False
        if self._fails_again(run) and trial.broke_at is None:
            trial.broke_at = len(run.history) - 1
            return bool(trial.remedy)  # which may take longer to act, and is judged at its end
        return True

    def _from_the_start(self, remedy: str) -> Run:
        """Return the run that a restart with the remedy would make."""
        return Run(self.tried.preset, self.restarted_with(remedy), self._planned)

    def _keep(self, driver: RunDriver) -> None:
        """Store the state in which the trials begin, so that later trials start at once."""
        run, trainer = driver.run, driver.trainer
        if trainer is None or trainer.step != self.step or run.replayed is not None:
            return
        from gradstudio.engine.snapshot import Snapshot

        state, diagnosis = Snapshot.take(trainer), run.rule_watch.diagnosis.copy()
        snapshot = KeptSnapshot(run.owner(self.step), self.step, state, diagnosis, dict(run.findings), run.seconds)
        self._snapshots.add(snapshot, 0.0)

    def _fails_again(self, run: Run) -> bool:
        """Return whether a run that stayed finite has a critical finding again. None of its critical findings began
        before the trials do."""
        return self._finite and is_critical(run)

    def _judge(self, trial: Trial, run: Run, driver: RunDriver) -> Outcome:
        """Fill in what the trial measured, and return its outcome."""
        losses = run.history.column("loss", trial.from_step)
        trial.loss = mean_of_latest(losses[np.isfinite(losses)])
        since = scores(run, trial.from_step, len(run.history))
        trial.score = mean_of_latest(since)
        alike = trial.from_step >= LATEST and not any(name.startswith("loss.") for name in values(trial.remedy))
        trial.learns = not rises(
            scores(run, trial.from_step - LATEST, trial.from_step) if alike else since[:LATEST], since[-LATEST:]
        )
        if run.refusals or run.status == "failed":
            trial.message = run.refusals[0].text if run.refusals else run.message
            self.failure = driver.failure
            return "failed"
        if run.first_nonfinite_step is not None:
            trial.broke_at, trial.nonfinite = run.first_nonfinite_step, True
        elif self._fails_again(run):
            trial.broke_at = len(run.history) - 1 if trial.broke_at is None else trial.broke_at
        elif self._stopping:
            return "not tried"
        else:
            state = run.rule_watch.diagnosis.progress.at(run.history)
            trial.broke_at = None
            trial.useless = is_useless(trial.accuracy, run.history, state)
            return "held"
        unchanged = self.trials[0].broke_at
        return (
            "no effect"
            if trial.remedy and unchanged is not None and abs(trial.broke_at - unchanged) <= 1
            else "broke again"
        )


def _begun_with(run: Run) -> Experiment:
    """Return the values at step 0, with the changes made by hand. A planned change is repeated at its step, and not
    before."""
    planned = {*run.planned, *run.asked}
    return run.experiment.with_values(
        {change.knob: change.value for change in list(run.timeline) if change not in planned}
    )


class _BorrowedSnapshots(Snapshots):
    """A copy of a family's snapshots. Trials add only the state in which they begin."""

    def __init__(self, family: Snapshots) -> None:
        super().__init__()
        self.wanted = True
        self._family = family

    def due(self, seconds: float) -> bool:
        return False

    def fetch(self, run: Run, trainer: Trainer) -> None:
        self._family.fetch(run, trainer)

    def nearest(self, run: Run, step: int) -> KeptSnapshot | None:
        snapshots = [
            snapshot
            for snapshot in (super().nearest(run, step), self._family.nearest(run, step))
            if snapshot is not None and self.wanted
        ]
        return max(snapshots, key=lambda kept: kept.step, default=None)


def headline(trials: Trials) -> str:
    """Return how many of the fixes healed the run, in words."""
    held = [trial for trial in trials.best_first if trial.outcome == "held" and trial.remedy]
    healed = sum(trial.is_healed for trial in held)
    count = sum(trial.outcome is not None for trial in trials.trials if trial.remedy)
    others = f", {plural(len(held) - healed, 'only survives', 'only survive')}" if len(held) > healed else ""
    if held and not healed:
        return f"No tried fix learns, of {count}{others}"
    return f"{plural(healed, 'fix', 'fixes')} of {count} healed the run{others}"
