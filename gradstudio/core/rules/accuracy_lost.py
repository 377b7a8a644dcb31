"""A run that was better than it is now: on the test set, and on its training batches."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import RISEN, Progress
from gradstudio.core.diagnosis.rule import TestSetRule
from gradstudio.core.history import History, up_to
from gradstudio.core.text import percent


@dataclass
class AccuracyLost(TestSetRule):
    """Fires if the accuracy on the training batches is clearly lower than at best (Progress.worse), and so is that on
    the test set, by more than `drop`. It is critical if the test accuracy is below what the task promises. The accuracy
    at the end of the run counts as one more measurement."""

    rule = "accuracy_lost"
    drop: float = RISEN

    def judge(self, history: History, state: Progress, step: int, accuracy: float) -> None:
        if state.broken or not (state.worse and accuracy < state.best_accuracy - self.drop):
            self.soften(False)
            return
        self.tell(
            history, "critical" if accuracy < state.promised else "warning", "Worse than before",
            f"{self.when(history, step)} the accuracy on the test set is {percent(accuracy)}. In the 50 "
                f"training batches {up_to(history)}, {percent(state.accuracy)} of the examples were right, and "
                f"{percent(state.best_accuracy)} in the 50 up to step {state.best_step - 1:,}.",
            "The run has lost a part of what it had learned. Its weights were better before: rewind to step "
                f"{state.best_step:,} or earlier and change what did the harm after it.",
        )  # fmt: skip
