"""A model that is right in training and often wrong on the test set."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis import mechanism
from gradstudio.core.diagnosis.progress import MOVED, RISEN, Progress
from gradstudio.core.diagnosis.rule import TestSetRule
from gradstudio.core.history import History, up_to
from gradstudio.core.text import percent


@dataclass
class TestGap(TestSetRule):
    """Fires after `after` steps if the accuracy on the training batches exceeds that on the test set by `gap`, or by
    half of that while the test accuracy is below what the task promises. It is critical if the full gap and the low
    accuracy come together. nothing_learned reports an accuracy of guessing. The accuracy at the end of the run counts
    as one more measurement. (SageMaker Debugger calls a tenth more overfitting, which small sets of digits reach in
    sound runs too.)"""

    rule = "test_gap"
    gap: float = 2 * RISEN
    after: int = 100

    def judge(self, history: History, state: Progress, step: int, accuracy: float) -> None:
        guessed = state.above_guessing(accuracy, history.value("test_accuracy", 0)) <= MOVED
        more, missed = self.in_training(history, state) - accuracy, accuracy < state.promised
        apart = more > (self.gap / 2 if missed else self.gap) and not state.by_accuracy
        if state.broken or step < self.after or guessed or not apart:
            self.soften(False)
            return
        self.tell(
            history, "critical" if missed and more > self.gap else "warning", "Wrong on the test set",
            f"{self.when(history, step)} the accuracy on the test set is {percent(accuracy)}, while "
                f"{percent(state.accuracy)} of the examples in the 50 training batches {up_to(history)} were right.",
            mechanism.reasons_for_test_gap(history, state.batch_normed),
            ("model.norm=layer",) if state.batch_normed else (),
        )  # fmt: skip
