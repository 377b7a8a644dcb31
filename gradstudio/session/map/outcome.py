"""The outcome of a cell: it diverged, was stuck at guessing, or learned; or it failed. Never guessed before the end of
the run, except for a loss so large that no run has come back from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gradstudio.core.experiment import Experiment
from gradstudio.core.task_measures import (
    accuracy_of_guessing,
    loss_may_be_negative,
    loss_of_guessing,
    why_it_need_not_fall,
)
from gradstudio.session.record.run_outcome import LATEST, TOO_LARGE, above_guessing, below_start

Outcome = Literal["learned", "stuck", "diverged", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("learned", "stuck", "diverged", "failed")  # from the best to the worst


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of one run of a cell. `step`: its last step, whose loss is `loss`, to the last bit. `reached`: mean loss
    of its last steps; NaN if it did not get to its end. `environment`: the machine."""

    outcome: Outcome
    step: int
    loss: float
    reached: float
    seconds: float
    message: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    run_again: bool = False  # a worker was lost while it trained, so it was trained again


class Judge:
    """Judges one run by its losses, as they arrive."""

    def __init__(self, knobs: Experiment) -> None:
        self._guess = loss_of_guessing(knobs)
        self._bounded = not loss_may_be_negative(knobs)
        self.by_accuracy = bool(why_it_need_not_fall(knobs))  # the loss does not show whether it learned
        self._guess_accuracy = accuracy_of_guessing(knobs)
        self._first = math.nan
        self._limit = math.inf

    def has_diverged(self, loss: float) -> bool:
        """Return whether the run diverged at the step with this loss."""
        if math.isnan(self._first):
            self._first = loss
            start = max(loss, self._guess) if self._guess == self._guess else loss
            if self._bounded and math.isfinite(start):
                self._limit = TOO_LARGE * start
        return not loss <= self._limit or not math.isfinite(loss)

    def at_the_end(self, reached: float, accuracy: float) -> Outcome:
        """Return the outcome of a run that reached its end: from the mean loss of its last steps and its accuracy on
        the test set, which counts only if the loss is not informative."""
        if self.by_accuracy and math.isfinite(accuracy):
            return "learned" if above_guessing(accuracy, self._guess_accuracy) else "stuck"
        start = self._guess if self._guess == self._guess else self._first
        return "learned" if below_start(reached, start) else "stuck"


def last_steps(steps: int) -> int:
    """Return the number of steps at the end of a run over which the reached loss is averaged: at most a tenth of the
    run."""
    return max(1, min(LATEST, steps // 10))


def final_loss(losses: Sequence[float]) -> float:
    """Return the mean loss of the last steps of a run."""
    latest = losses[-last_steps(len(losses)) :]
    return math.fsum(latest) / len(latest)
