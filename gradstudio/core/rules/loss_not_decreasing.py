"""A loss that does not fall."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import MOVED, SOLVED, Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.suggested_rate import fitting_rate, is_another
from gradstudio.core.history import LOOK_EVERY, History


@dataclass
class LossNotDecreasing(PeriodicRule):
    """Fires if the loss has fallen by less than `fall` of its first value in `after` steps, and the accuracy has not
    risen either. TheDeepChecker asks for 5 % in a period, SageMaker for any fall in ten looks."""

    rule = "loss_not_decreasing"
    fall: float = 0.05
    after: int = 150

    _highest: float = -math.inf  # learning rate so far
    _seen: int = 0  # rows

    def look(self, history: History, state: Progress) -> None:
        self._highest = float(max(self._highest, history.column("lr", self._seen).max()))
        self._seen = len(history)
        if abs(state.recent) <= SOLVED and not history.column("grad_norm", len(history) - LOOK_EVERY).any():
            self.soften(badly=False)
            return
        if state.by_accuracy:  # it need not fall: see core/task_measures.py
            return
        if len(history) < self.after or not (state.stuck or state.has_lost):
            self.soften(state.recent > (1 - self.fall) * state.start and not state.well)
            return
        if not state.recent > (1 - self.fall) * state.start or state.accuracy > state.start_accuracy + 2 * MOVED:
            return
        self.tell(
            history, "warning", "The loss does not fall",
            state.course(), "The updates do not bring the loss down. Other findings may say why.",
            self._remedies(history, state),
            first=None if self._finding else self._since(history, state),
        )  # fmt: skip

    def _since(self, history: History, state: Progress) -> int:
        """Return the start of the latest stretch in which the median loss of every LOOK_EVERY steps stayed less than
        `fall` below the first loss."""
        stop = len(history)
        while stop:
            start = max(stop - LOOK_EVERY, 0)
            if median(history.column("loss", start, stop)) <= (1 - self.fall) * state.start:
                break
            stop = start
        return min(stop, len(history) - 1)

    def _remedies(self, history: History, state: Progress) -> tuple[str, ...]:
        """Return a rate that suits the first update; not one that a schedule has been through or that is close to the
        one in force, and no higher one if the loss has risen."""
        fit, lr = fitting_rate(history), history.value("lr", len(history) - 1)
        if state.all_zero or fit is None or (fit > lr and state.recent > state.start):
            return ()
        if not is_another(fit, lr, self._highest):
            return ()
        return (f"optimizer.lr={fit:.2g}",)
