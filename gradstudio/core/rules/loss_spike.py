"""A loss that jumps up at one step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import mechanism
from gradstudio.core.diagnosis.episode import NO_EPISODE, Episode
from gradstudio.core.diagnosis.finding import Severity
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class LossSpike(PeriodicRule):
    """Fires at a loss that is `deviations` robust standard deviations above the median of the `window` steps before
    (one is 1.4826 times the median distance from it), above `times` that median, and above `height` of the first loss.
    It is a warning if the run does not recover: the next `least` losses stay above that median.

    OLMo 2 counts points 7 deviations from a rolling mean of 1000 steps; public watchers take 8 of the log of 100."""

    rule = "loss_spike"
    deviations: float = 8.0
    times: float = 2.0
    height: float = 0.5
    window: int = 100
    least: int = 20  # steps before a spike can be told apart from the start of training
    enough: int = 5  # losses after a peak that show whether it has passed
    back: float = 1.05  # times the median before, up to which the losses after it are as they were
    every: int = 40  # steps between two updates of the usual level

    _seen: int = 0
    _line: float = math.inf
    _median: float = math.nan
    _episode: Episode = NO_EPISODE  # losses above the threshold
    _told_at: int = -1  # the peak whose next five losses were reported
    _before: float = math.nan  # the usual level then
    _calm: float = math.inf  # and before the first spike

    def look(self, history: History, state: Progress) -> None:
        if state.by_accuracy:  # a loss that grows with the reward is no spike
            return
        losses = history.column("loss", self._seen)
        if not losses.max() <= self._line:  # or NaN
            high = np.flatnonzero(losses > self._line)
            rested = len(high) and self._seen + int(high[0]) > self._episode.last + self.least
            if rested and self._episode.began and self._ended(history):
                self._episode = NO_EPISODE  # that one is over: this is another
            before = self._episode.peak
            for at in high.tolist():
                self._episode = self._episode.at(self._seen + at, losses[at] if math.isfinite(losses[at]) else 0.0)
            if self._episode.peak > before:
                self._before, self._calm = self._median, min(self._calm, self._median)
        if self._episode.peak:
            harmful = (state.failing or state.worse) and not self._ended(history)
            self._say(history, "warning" if harmful else "info")
        self._seen = len(history)
        if len(history) % self.every == 0 or (self._line == math.inf and len(history) >= self.least):
            before = history.column("loss", len(history) - self.window)
            before = before[np.isfinite(before)]
            if len(before):
                self._median = median(before)
                deviation = 1.4826 * median(np.abs(before - self._median))
                self._line = max(
                    self._median + self.deviations * deviation, self.times * self._median, self.height * state.start
                )

    def _ended(self, history: History) -> bool:
        """Return whether the loss returned after its peak to its level before the first spike: a later failure of the
        run has another cause."""
        after = history.column("loss", self._episode.peak_step + 1, self._episode.peak_step + 1 + self.least)
        return len(after) >= self.enough and median(after) <= self._calm + (self.back - 1) * abs(self._calm)

    def _say(self, history: History, severity: Severity) -> None:
        """Report the highest loss and what followed it: the loss of a step is that of the weights before its update, so
        a single bad batch leaves the next loss unchanged."""
        since, latest, peak, step = self._episode
        if self._finding is not None and severity == self._finding.severity and self._told_at == step:
            return
        after = history.column("loss", step + 1, step + 6)
        finite = bool(len(after)) and bool(np.isfinite(after).all())
        usual = 2 * self._before
        follows = f" The next loss was {number(float(after[0]))}." if len(after) else ""
        if finite and after[0] <= usual and history.value("loss", step - 1) <= usual:
            meaning = (
                "The loss was as usual one step before and one step after: it was high for this batch at these weights."
            )
            if severity != "info":
                now = history.value("loss", len(history) - 1)
                raised = " The updates since then raised the loss: it" if now > self._before else " The loss"
                meaning += f"{raised} is {number(now)} at step {len(history) - 1:,}. "
                meaning += mechanism.update(history, step) + mechanism.turn(history, step)
        elif (finite and after.min() <= usual) or severity == "info":
            meaning = "An update at that step, or shortly before it, moved the weights to a higher loss for a while."
        else:
            meaning = "An update at that step, or shortly before it, moved the weights to a higher loss."
        finding = self._finding
        if severity != "info" and finding is not None and finding.severity == "info" and since > finding.first_step:
            self._finding = None  # the reported spike has passed
        self.tell(
            history, severity, "Loss spike" if severity != "info" else "Loss spike that passed",
            f"The loss was about {number(self._before)}, and {number(peak)} at step {step:,}." + follows,
            meaning, ("clipping.kind=norm",) if severity != "info" else (), first=since, last=latest,
        )  # fmt: skip
        if len(after) == 5:
            self._told_at = step
