"""Updates that stay small after one large gradient, which the optimizer remembers and divides by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import mechanism
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number, percent

_FORGOTTEN = 10.0  # times the length of the mean after which no more than 5e-5 of a gradient remains
_DIVIDE = ("adam", "adamw", "rmsprop")


@dataclass
class UpdatesAfterSpike(PeriodicRule):
    """Fires if a gradient more than `times` the median of the `window` steps before reached an optimizer that divides
    by a running mean of squares and still makes up more than `share` of that mean, and if the median of the updates
    after it was less than `left` of that before, at about the same learning rate, in a run that does badly or not yet
    well.

    Own thresholds: Adam's mean of squares loses 0.001 of the spike at a step, so updates are small for hundreds of
    steps."""

    rule = "updates_after_spike"
    times: float = 30.0
    left: float = 0.5
    share: float = 0.5
    window: int = 50
    least: int = 20  # steps before a spike, and after it
    rested: int = 10  # steps after the spike in which Adam's mean of gradients still carries it

    _seen: int = 0
    _spike: int = -1
    _usual: float = 0.0  # median norm before it

    def look(self, history: History, state: Progress) -> None:
        settings = history.settings[-1][1] if history.settings else None
        if settings is None or settings.optimizer not in _DIVIDE:
            return
        if self._finding is None:
            self._search(history)
        self._seen = len(history)
        if not state.struggling:
            self.soften(not state.well)
            return
        first = self._spike + 1 + self.rested
        if self._finding is not None or self._spike < 0 or len(history) < first + self.least:
            return
        before, after = self._updates(history, self._spike - self.window, self._spike), self._updates(history, first)
        rate, now = (history.value("lr", step) for step in (self._spike, len(history) - 1))
        if after < self.left * before and now > 0.8 * rate and self._spike_share(history) > self.share:
            self._say(history, before, after)

    def _spike_share(self, history: History) -> float:
        """Return the share of the spike, and of similar ones after it, in the running mean of squares, summed over all
        entries; 0 if unknown."""
        settings = mechanism.in_force(history, self._spike)
        if settings is None or not 0 < settings.beta2 < 1:
            return 0.0
        start = max(len(history) - round(_FORGOTTEN / (1 - settings.beta2)), 0)
        norms = history.column("clipped_norm", start)
        squares = np.where(np.isfinite(norms), norms, 0.0) ** 2 * settings.beta2 ** np.arange(len(norms) - 1, -1, -1)
        spikes = (norms > self.times * self._usual) & (np.arange(start, start + len(norms)) >= self._spike)
        return float(squares[spikes].sum() / squares.sum())

    def _say(self, history: History, before: float, after: float) -> None:
        settings = mechanism.in_force(history, self._spike)
        memory = mechanism.memory(settings) if settings else ""
        last = len(history) - 1
        self.tell(
            history, "warning", "Small updates after a gradient spike",
            f"The gradient norm that reached the optimizer was {number(history.value('clipped_norm', self._spike))} at "
                f"step {self._spike:,}, and {number(self._usual)} in the median before. The median update was "
                f"{number(before)} times as large as the weights before it, and {number(after)} in the last "
                f"{min(last - self._spike - self.rested, self.window)} steps up to step {last:,}.",
            "The optimizer divides by the root of its running mean of squared gradients, and such gradients still are "
            f"{percent(self._spike_share(history))} of that mean. It keeps a gradient{memory}, so updates stay small."
            f"{mechanism.turn(history, self._spike)}",
            ("clipping.kind=norm",), first=self._spike,
        )  # fmt: skip

    def _updates(self, history: History, start: int, stop: int | None = None) -> float:
        """Return the median size of the last updates among these steps; NaN if none is finite."""
        sizes = history.column("update_ratio", max(start, 0), stop)[-self.window :]
        sizes = sizes[np.isfinite(sizes)]
        return median(sizes) if len(sizes) else math.nan

    def _search(self, history: History) -> None:
        """Find a spike among the new rows, or keep the one already found."""
        start = max(self._seen, self.least)
        norms = history.column("clipped_norm", start)
        before = history.column("clipped_norm", max(start - self.window, 0), start)
        before = before[np.isfinite(before)]
        if len(before) < self.least or not len(norms):
            return
        usual = median(before)
        if not usual > 0:  # next to a gradient of 0, as in an underflow, any is large
            return
        high = np.flatnonzero(np.isfinite(norms) & (norms > self.times * usual))
        if len(high):
            self._spike, self._usual = start + int(high[0]), usual
