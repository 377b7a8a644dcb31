"""A learning rate that was raised during the run, and a loss that has been higher since."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.median import median, median_text
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number, percent


@dataclass
class RateRaised(PeriodicRule):
    """Fires if the learning rate rose more than `times` in one step and the median loss of the next `window` steps was
    above `higher` of that before, and still is, in a run that does badly or not yet well, or whose loss is still at
    `much` of it. If only the accuracy shows how the task goes, it must have fallen by as much.

    Own thresholds. A warmup from 0 at most doubles the rate, and so do users who adjust the rate of a sound run."""

    rule = "rate_raised"
    times: float = 3.0
    higher: float = 1.05
    much: float = 1.5
    least: int = 10  # steps before the change and after it
    window: int = 50

    _seen: int = 0
    _since: int = -1

    def look(self, history: History, state: Progress) -> None:
        rates = history.column("lr", max(self._seen - 1, 0))
        if self._since < 0 and len(rates) and rates.max() <= self.times * rates.min():  # as nearly always
            self._seen = len(history)
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            raised = np.flatnonzero(rates[1:] > self.times * rates[:-1]) + 1 + max(self._seen - 1, 0)
        raised = raised[raised >= self.least]
        if self._finding is None and len(raised):
            self._since = int(raised[0])
        self._seen = len(history)
        if self._since < 0 or not (history.broken or len(history) >= self._since + self.least):
            return
        if not (self._finding or self._height(history, state, self._since, self._since + self.window) > self.higher):
            return
        now = self._height(history, state, max(self._since, len(history) - self.window), len(history))
        badly = state.failing or state.worse or state.struggling or now > self.much
        if not (badly and now > self.higher):
            self.soften(not state.well)
            return
        self._say(history, state)

    def _say(self, history: History, state: Progress) -> None:
        since, last = self._since, len(history) - 1
        before, after = (history.value("lr", step) for step in (since - 1, since))
        name, told = ("accuracy", percent) if state.by_accuracy else ("loss", number)
        then, now = (
            median_text(self._measurements(history, state, start, stop), told)
            for start, stop in ((since - self.window, since), (max(since, last + 1 - self.window), last + 1))
        )
        small, large = (
            median_text(history.column("update_ratio", max(start, 0), stop))
            for start, stop in ((since - self.window, since), (since, since + self.window))
        )
        self.tell(
            history, "critical" if state.failing else "warning", "Worse since the rate was raised",
            f"The learning rate rose from {number(before)} to {number(after)} at step {since:,}. The median {name} was "
                f"{then} in the steps before, and is {now} in the last ones up to step {last:,}.",
            f"The median update was {small} times as large as the weights before, and {large} in the steps after it.",
            (f"optimizer.lr={before:.3g}",) if before > 0 else (), first=since,
        )  # fmt: skip

    def _height(self, history: History, state: Progress, start: int, stop: int) -> float:
        """Return by what factor these steps are worse than those before the raise."""
        before = self._typical(history, state, self._since - self.window, self._since)
        then = self._typical(history, state, start, stop)
        worse, better = (before, then) if state.by_accuracy else (then, before)
        return worse / better if better > 0 else 0.0

    def _typical(self, history: History, state: Progress, start: int, stop: int) -> float:
        """Return the median loss, or accuracy, of these steps; a NaN among them counts as the worst."""
        values = self._measurements(history, state, start, stop)
        return median(np.where(np.isnan(values), 0.0 if state.by_accuracy else np.inf, values))

    @staticmethod
    def _measurements(history: History, state: Progress, start: int, stop: int) -> np.ndarray:
        return history.column("accuracy" if state.by_accuracy else "loss", max(start, 0), stop)
