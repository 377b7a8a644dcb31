"""A loss that jumps up at one step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import Looking
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class LossSpike(Looking):
    """Fires at a loss that is `deviations` robust standard deviations above the median of the `window` steps before
    (one is 1.4826 times the median distance from it), above `times` that median, and above `height` of the first loss.
    It is a warning where the run does not recover.

    OLMo 2 counts points 7 deviations from a rolling mean of 1000 steps; public watchers take 8 of the log of 100."""

    rule = "loss_spike"
    deviations: float = 8.0
    times: float = 2.0
    height: float = 0.5
    window: int = 100
    least: int = 20  # steps before a spike can be told from the start of training
    every: int = 40  # steps between two looks at what is usual

    _seen: int = 0
    _line: float = math.inf
    _median: float = math.nan
    _peak: float = 0.0

    def look(self, history: History, state: Progress) -> None:
        losses = history.column("loss", self._seen)
        if not losses.max() <= self._line:  # or NaN
            high = np.flatnonzero(losses > self._line)
            at = int(high[0]) if len(high) else 0
            peak = float(losses[high][np.isfinite(losses[high])].max(initial=0.0))
            if peak > self._peak:
                self._peak, step = peak, self._seen + at
                self.tell(
                    history, "warning", "Loss spike",
                    f"The loss rose from about {number(self._median)} to {number(peak)} near step {step:,}.",
                    "One bad batch, or one update that was too large, moved the weights to a higher loss.",
                    ("clipping.kind=norm",),
                    first=step,
                )  # fmt: skip
        self.soften(state.failing)
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
