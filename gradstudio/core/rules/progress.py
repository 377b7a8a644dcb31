"""Whether the loss still falls: what other rules are held against, as small gradients or large updates alone are no fault.

Worked out once for all rules, from the rows alone, at every LOOK_EVERY rows and at the first that is not finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.rules.median import median

WINDOW = 50  # steps
START = 10  # steps
FALLEN = 0.7  # of the loss at the start: it has learned
HARDLY = 0.95  # of it: next to nothing was learned
RESTING = 0.98  # of the steps before: it stands still
WELL = 0.4  # of the loss at the start, or 1 - WELL more accuracy, or twice WELL of it: nobody need look for a fault
RISEN = 0.15  # of the accuracy, from 0 to 1: it has learned, whatever the loss means
MOVED = 0.03  # of the accuracy: it is another one


@dataclass
class Progress:
    """Medians of the loss and means of the accuracy over WINDOW steps. NaN is what there is not (yet)."""

    count: int = 0
    start: float = math.nan  # loss of the first steps
    start_accuracy: float = math.nan
    recent: float = math.nan
    later: float = math.nan  # of the later half of the last 2 WINDOW steps, those of the very start left out
    before: float = math.nan  # of the earlier half
    spread: float = math.nan  # of the recent losses: 0.75 quantile - 0.25 quantile
    best: float = math.inf
    accuracy: float = math.nan
    best_accuracy: float = -math.inf
    broken: bool = False  # a NaN or Inf reached the loss or the weights
    warming: bool = False  # the learning rate rises
    _grid: int = field(default=0, repr=False)  # rows that were looked at

    @property
    def known(self) -> bool:
        return self.count >= WINDOW

    @property
    def learned(self) -> bool:
        """By the accuracy; or by the loss, where an accuracy that there is has moved with it: a loss that was thrown up and came down to
        what guessing costs has taught nothing."""
        if self.accuracy > self.start_accuracy + RISEN:
            return True
        return self.recent < FALLEN * self.start and not self.accuracy <= self.start_accuracy + MOVED

    @property
    def lost(self) -> bool:
        """What was learned is forgotten, or the loss has left for good."""
        if self.best_accuracy - self.accuracy > max(RISEN, 0.4 * self.best_accuracy):
            return True
        if self.accuracy == self.accuracy and self.learned:
            return False
        return self.recent > 2 * self.best and self.recent > 0.5 * self.start and self.known

    @property
    def stuck(self) -> bool:
        """Next to nothing is learned, and nothing more comes."""
        if not self.known or self.learned or self.warming:
            return False
        return self.recent > HARDLY * self.start or self.later >= RESTING * self.before or (self.recent < FALLEN * self.start)

    @property
    def struggling(self) -> bool:
        """It does badly, or after a while still not well: enough where a fault can be measured as such."""
        if self.failing or self.warming or self.count < 2 * WINDOW:
            return self.failing
        rise = self.accuracy - self.start_accuracy
        return not (rise > 1 - WELL or self.accuracy > 2 * WELL) if rise == rise else not self.recent < WELL * self.start

    @property
    def well(self) -> bool:
        return self.learned and not self.failing

    @property
    def failing(self) -> bool:
        return self.broken or self.stuck or self.lost


def progress(history: History) -> Progress:
    """How the run stands; the same whether it is asked often or once."""
    known = history.progress
    if known is None:
        known = history.progress = Progress(broken=_has_broken(history))
    count = len(history)
    if known.count != count or not count:
        for grid in range(known._grid + LOOK_EVERY, count + 1, LOOK_EVERY):
            _take(known, history, grid)
            known._grid = grid
            known.best = min(known.best, known.recent) if grid >= WINDOW else known.best
            known.best_accuracy = max(known.best_accuracy, known.accuracy) if grid >= WINDOW else known.best_accuracy
        if count % LOOK_EVERY:
            _take(known, history, count)
        known.broken = known.broken or _broke(history)
        known.count = count
    return known


def loss_at_start(history: History) -> float:
    """progress(history).start, for those who look at every row: once the first losses are there, it stays what it is."""
    known = history.progress
    return known.start if known is not None and known.count >= START and known.start == known.start else progress(history).start


def _take(known: Progress, history: History, count: int) -> None:
    losses = history.column("loss", count - 2 * WINDOW, count)
    if count <= LOOK_EVERY or known.start != known.start:
        finite = losses[:START][np.isfinite(losses[:START])]
        known.start = min(median(finite), median(finite[:3])) if len(finite) else math.nan  # some explode at once
        known.start_accuracy = float(history.column("accuracy", 0, START).mean())
    recent = losses[-WINDOW:]
    ordered = np.sort(recent)  # NaN last
    size = len(ordered)
    known.recent, known.spread = ordered.item(size // 2), ordered.item(3 * size // 4) - ordered.item(size // 4)
    settled = losses[max(2 * START - count + len(losses), 0) :]  # rows 20 and later
    half = len(settled) // 2
    if half:
        known.before = np.sort(settled[:half]).item(half // 2)
        known.later = (ordered if len(settled) - half == size else np.sort(settled[half:])).item(half // 2)
    known.accuracy = float(history.column("accuracy", count - WINDOW, count).sum()) / size
    known.warming = history.value("lr", count - 1) > 1.001 * history.value("lr", max(count - WINDOW, 0))


def _has_broken(history: History) -> bool:
    """At any row so far."""
    losses, nonfinite, skipped = (history.column(name) for name in ("loss", "nonfinite", "skipped"))
    return not bool((np.isfinite(losses) & ((nonfinite == 0) | (skipped != 0))).all())


def _broke(history: History) -> bool:
    return history.went_nonfinite_at(len(history) - 1)
