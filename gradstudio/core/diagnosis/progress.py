"""The progress of a run: whether it learns, is stuck or has lost what it learned. Rules consult it, since small
gradients or large updates alone are no fault.

It is computed once for all rules, from the rows alone, every LOOK_EVERY rows and at the first non-finite one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from gradstudio.core.diagnosis import initial_weights
from gradstudio.core.diagnosis.median import median
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.task_measures import (
    accuracy_of_guessing,
    loss_of_guessing,
    promised_accuracy,
    why_it_need_not_fall,
)
from gradstudio.core.text import number, plural
from gradstudio.core.unknown import known_mask

WINDOW = 50  # steps
START = 10  # steps
FALLEN = 0.7  # share of the first loss below which the run has learned
HARDLY = 0.95  # share of the first loss above which it has learned almost nothing
COME_UP = 1.2  # times the best median loss, above which it has risen again
RESTING = 0.98  # share of the loss of the steps before, above which it stagnates
WELL = 0.4  # share of the first loss, or 1 - WELL more accuracy, or an accuracy of twice WELL: no fault to look for
RISEN = 0.15  # rise of the accuracy (0 to 1) that counts as learning, whatever the loss means
MOVED = 0.03  # smallest change of the accuracy that counts
THROWN = 2.0  # times the first loss: if all later losses are above it, a large first update threw the loss up
FAR = 10.0  # times the first loss: if a run of few steps stays above it, the loss has not come back
SOLVED = 1e-6  # loss that is the rounding of numbers near 1, a few times 2**-23: at a gradient of 0 nothing is left
SOME = 0.01  # update / weights: it may have thrown the loss up
LARGE = 1.0  # update / weights: the initial weights are gone
SEEN = 3  # losses after the first that are needed to decide this


@dataclass
class Progress:
    """Medians of the loss and means of the accuracy over WINDOW steps; NaN if there is no value yet."""

    guess: float = math.nan  # accuracy that is reached without looking at the input
    guess_loss: float = math.nan  # and its loss
    # whether progress on the task shows in the accuracy, if there is one, rather than in the loss
    by_accuracy: bool = False
    promised: float = math.nan  # test accuracy that a sound run of the task reaches at least
    normed_over: int = 0  # number of examples that a batch norm of a fully connected network averages over; 0: none
    batch_normed: bool = False  # whether the model computes something else in evaluation than in training

    count: int = 0
    start: float = math.nan  # loss of the first steps
    start_steps: int = START  # number of losses whose median is `start`
    threw_up: bool = False  # whether the first update threw the loss up; then `start` is that of step 0
    start_accuracy: float = math.nan
    recent: float = math.nan
    later: float = math.nan  # of the later half of the last 2 WINDOW steps, without the first steps of the run
    before: float = math.nan  # of the earlier half
    quarters: tuple[float, float] = (math.nan, math.nan)  # of the recent losses: quantiles 0.25 and 0.75
    best: float = math.inf
    accuracy: float = math.nan
    best_accuracy: float = -math.inf
    best_step: int = 0  # number of steps after which the accuracy was best
    scatter: float = math.nan  # standard error of `accuracy`
    broken: bool = False  # a NaN or Inf reached the loss or the weights
    warming: bool = False  # the learning rate rises
    all_zero: bool = False  # all weights were 0 before the first update, which explains the rest
    later_accuracy: float = math.nan  # means of the same halves as `later` and `before`
    before_accuracy: float = math.nan
    _grid: int = field(default=0, repr=False)  # rows up to the latest multiple of LOOK_EVERY

    @staticmethod
    def of(knobs: Experiment) -> Progress:
        """Return the progress of a run of this experiment, before its first step."""
        batch_normed = knobs.model.norm == "batch" and knobs.applies("model.norm")
        return Progress(
            accuracy_of_guessing(knobs),
            loss_of_guessing(knobs),
            bool(why_it_need_not_fall(knobs)),
            promised_accuracy(knobs),
            knobs.problem.batch_size if batch_normed and knobs.model.kind == "mlp" else 0,
            batch_normed,
        )

    def above_guessing(self, accuracy: float, start: float) -> float:
        """Return by how much a test accuracy exceeds that of guessing, or the one before the first update if the model
        began with about as much."""
        if self.guess != self.guess or self.guess < start <= self.guess + RISEN:
            return accuracy - start
        return accuracy - self.guess

    def course(self) -> str:
        """Return the initial and the current loss, as a sentence."""
        latest = f"{number(self.recent)} in the {min(WINDOW, self.count)} up to step {self.count - 1:,}"
        if self.threw_up:
            return f"The loss was {number(self.start)} at step 0, and its median is {latest}."
        steps = plural(self.start_steps, "step", "steps")
        return f"The median loss was {number(self.start)} in the first {steps}, and is {latest}."

    @property
    def stays_thrown_up(self) -> bool:
        """True if the first update threw the loss up and it has not come back. Some healthy runs begin like this; for a
        run of few steps it requires a loss that is far up."""
        return self.threw_up and self.recent > (THROWN if self.is_known else FAR) * self.start

    @property
    def spread(self) -> float:
        """The interquartile range of the recent losses."""
        return self.quarters[1] - self.quarters[0]

    @property
    def is_known(self) -> bool:
        return self.count >= WINDOW

    @property
    def has_learned(self) -> bool:
        """True if the accuracy has risen; or if the loss has fallen below that of guessing and the accuracy, if there
        is one, has moved with it: a loss that came down from 1e9 to 1e6 has taught nothing."""
        if self.accuracy > self.start_accuracy + RISEN:
            return True
        fallen = not self.by_accuracy and self.recent < FALLEN * self.reference
        return fallen and not self.accuracy <= self.start_accuracy + MOVED

    @property
    def reference(self) -> float:
        """The loss that counts as having learned nothing: the first, or that of guessing if it is lower."""
        return self.guess_loss if self.guess_loss < self.start else self.start

    @property
    def has_lost(self) -> bool:
        """True if the run has lost what it had learned, or its loss has risen permanently."""
        if self.best_accuracy - self.accuracy > max(RISEN, 0.4 * self.best_accuracy):
            return True
        if self.by_accuracy or (self.accuracy == self.accuracy and self.has_learned):
            return False
        return (
            self.recent > 2 * self.best and self.recent > 0.5 * self.start and self.is_known
        ) or self.stays_thrown_up

    @property
    def worse(self) -> bool:
        """True if the run was clearly better before, although it may still be good: twice as many examples of a
        training batch are wrong as at best, RISEN more of them, and more than chance explains."""
        fallen = self.best_accuracy - self.accuracy
        doubled = 1 - self.accuracy > 2 * (1 - self.best_accuracy)
        return not self.by_accuracy and fallen > max(RISEN, 4 * self.scatter) and doubled

    @property
    def stuck(self) -> bool:
        """True if the run has learned almost nothing and no longer improves. A rising rate excuses a loss that has not
        fallen yet, but not one that has risen again."""
        if not self.is_known or self.has_learned or (self.warming and not self.recent > COME_UP * self.best):
            return False
        if self.by_accuracy:
            return self.accuracy == self.accuracy and not self.later_accuracy > self.before_accuracy + MOVED
        return (
            self.recent > HARDLY * self.reference
            or self.later >= RESTING * self.before
            or (self.recent < FALLEN * self.reference)
        )

    @property
    def has_stalled(self) -> bool:
        """True if the loss no longer falls and the accuracy on the training batches is below what the task promises."""
        return self._resting and self.accuracy < self.promised

    @property
    def is_unfinished(self) -> bool:
        """True if the loss no longer falls and the accuracy is less than halfway from that promise to 1."""
        return self._resting and self.accuracy < (1 + self.promised) / 2

    @property
    def _resting(self) -> bool:
        return self.is_known and not self.warming and not self.by_accuracy and self.later >= RESTING * self.before

    @property
    def struggling(self) -> bool:
        """True if the run does badly, or still not well after 2 WINDOW steps: enough to report a measured fault."""
        if self.failing or self.warming or self.count < 2 * WINDOW:
            return self.failing
        rise = self.accuracy - self.start_accuracy
        return (
            not (rise > 1 - WELL or self.accuracy > 2 * WELL) if rise == rise else not self.recent < WELL * self.start
        )

    @property
    def well(self) -> bool:
        return self.has_learned and not self.failing

    @property
    def failing(self) -> bool:
        return self.broken or self.stuck or self.has_lost

    def at(self, history: History) -> Progress:
        """Return the progress up to the latest row, which does not depend on how often it is called."""
        count = len(history)
        if not self.count:
            self.broken = _has_broken(history)
            self.all_zero = count > 0 and initial_weights.all_zero(history)
        if self.count != count or not count:
            for grid in range(self._grid + LOOK_EVERY, count + 1, LOOK_EVERY):
                self._take(history, grid)
                self._grid = grid
                self.best = min(self.best, self.recent) if grid >= WINDOW else self.best
                if grid >= WINDOW and self.accuracy > self.best_accuracy:
                    self.best_accuracy, self.best_step = self.accuracy, grid
            if count % LOOK_EVERY:
                self._take(history, count)
            self.broken = self.broken or history.went_nonfinite_at(count - 1)
            self.count = count
        return self

    def loss_at_start(self, history: History) -> float:
        """Return `start`, for rules that look at every row: constant once the first losses are there."""
        return self.start if self.count >= START and self.start == self.start else self.at(history).start

    def _take(self, history: History, count: int) -> None:
        losses = history.column("loss", count - 2 * WINDOW, count)
        if count <= LOOK_EVERY or self.start != self.start:
            self.threw_up = _threw_up(losses[:START], history.value("update_ratio", 0))
            self.start, self.start_steps = _start(losses[: 1 if self.threw_up else START])
            self.start_accuracy = float(history.column("accuracy", 0, START).mean())
        recent = losses[-WINDOW:]
        ordered = np.sort(recent)  # NaN last
        size = len(ordered)
        self.recent = (ordered.item((size - 1) // 2) + ordered.item(size // 2)) / 2
        self.quarters = ordered.item(size // 4), ordered.item(3 * size // 4)
        settled = losses[max(2 * START - count + len(losses), 0) :]  # rows 20 and later
        half = len(settled) // 2
        if half:
            self.before = np.sort(settled[:half]).item(half // 2)
            self.later = (ordered if len(settled) - half == size else np.sort(settled[half:])).item(half // 2)
        accuracies = history.column("accuracy", count - len(settled), count)
        if half:
            self.before_accuracy, self.later_accuracy = _mean(accuracies[:half]), _mean(accuracies[half:])
        latest = history.column("accuracy", count - WINDOW, count)
        self.accuracy = _mean(latest)
        self.scatter = float(latest.std()) / math.sqrt(size) if self.accuracy == self.accuracy else math.nan
        self.warming = history.value("lr", count - 1) > 1.001 * history.value("lr", max(count - WINDOW, 0))


def _start(losses: np.ndarray) -> tuple[float, int]:
    """Return the initial loss and the number of steps it covers: the lower median of all or of 3, as some runs explode
    at once."""
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return math.nan, START
    return min(((median(part), len(part)) for part in (finite, finite[:3])), key=itemgetter(0))


def _threw_up(losses: np.ndarray, ratio: float) -> bool:
    """Return whether the first update, `ratio` times as large as the weights, threw the loss up, so that the loss
    before it is the initial one. A single low loss may be an easy batch, unless it is far below the others."""
    first, later = float(losses[0]), losses[1:][np.isfinite(losses[1:])]
    if len(later) < SEEN or not 0 < THROWN * first < float(later.min()):
        return False
    return ratio > LARGE or (len(losses) >= START and FAR * first < float(later.min()) and ratio > SOME)


def _mean(values: np.ndarray) -> float:
    """Return the mean; NaN if any value is: at once if the latest is, as in a script, whose accuracy is unknown."""
    return float(values.sum()) / len(values) if values.item(-1) == values.item(-1) else math.nan


def _has_broken(history: History) -> bool:
    """Return whether any row so far is non-finite."""
    losses, nonfinite, skipped = (history.column(name) for name in ("loss", "nonfinite", "skipped"))
    sound = (np.isfinite(losses) | ~known_mask(losses)) & (~(nonfinite > 0) | (skipped == 1))
    return any(step not in history.harmless for step in np.flatnonzero(~sound).tolist())
