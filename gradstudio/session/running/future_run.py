"""A fix that held trains on, beside the run that diverged: what would have happened with it."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gradstudio.session.record.run import Run
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.running.remedy_trial import Trial, acts_live, values
from gradstudio.session.running.run_driver import RunDriver

LONGEST_REST = 0.05  # seconds of sleep after which a request to stop is noticed


class Future(NamedTuple):
    """The future of the best fix: its run, the step from which it differs, and its name."""

    run: Run
    start: int
    title: str


class FutureRun(threading.Thread):
    """Repeats a trial, with its own trainer, and continues to the last planned step of the run. Any thread may read it;
    it adds nothing to the family of the run."""

    def __init__(self, trials: Trials, trial: Trial, pace: Callable[[], float]) -> None:
        """`pace`: the steps per second after the end of the trial, read again at each of them."""
        super().__init__(name=f"training a future of {trials.tried.id}", daemon=True)
        self.trial = trial
        self.record: Run = trials.run_with(trial.remedy)
        self.failure = ""  # the traceback of a program error
        self._snapshots, self._pace = trials.borrow_snapshots(), pace
        self._trial_end = trial.from_step + trial.steps
        self._stopping, self._due = False, time.monotonic()

    def stop(self) -> None:
        """Make no more steps; any thread may call this."""
        self._stopping = True

    def run(self) -> None:
        driver = RunDriver(self.record, self._snapshots)
        try:
            driver.begin(None, lambda: self._stopping)
            if acts_live(self.trial.remedy) and driver.outcome is None and not self._stopping:
                driver.change_as_planned()
                for name, value in values(self.trial.remedy).items():
                    driver.change(name, value)
            driver.train(lambda: self._keeps_pace(driver))
            driver.end(leaving=self._stopping)
        except Exception:
            self.failure = traceback.format_exc()
        finally:
            driver.trainer = None  # free the model

    def _keeps_pace(self, driver: RunDriver) -> bool:
        """Wait until the next step is due, and return whether it is still to be made."""
        driver.settle()
        if len(self.record.history) > self._trial_end:
            self._due = max(self._due + 1 / self._pace(), time.monotonic() - LONGEST_REST)
            while (rest := self._due - time.monotonic()) > 0 and not self._stopping:
                time.sleep(min(rest, LONGEST_REST))
        return not self._stopping


def differs_since(one: Run, other: Run, start: int) -> int | None:
    """Return the first step from `start` on at which the loss or a gradient norm of two runs differs; None if both have
    the same rows so far. NaN equals NaN."""
    stop = min(len(one.history), len(other.history))
    apart = np.zeros(max(stop - start, 0), bool)
    for name in ("loss", "grad_norm", "clipped_norm"):
        here, there = (run.history.column(name, start, stop) for run in (one, other))
        apart |= (here != there) & ~(np.isnan(here) & np.isnan(there))
    places = np.flatnonzero(apart)
    return start + int(places[0]) if len(places) else None
