"""A run that is no better than guessing at what its task is for, whatever its loss says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import MOVED, RISEN, Progress
from gradstudio.core.diagnosis.rule import Looking
from gradstudio.core.history import History
from gradstudio.core.text import percent


@dataclass
class NothingLearned(Looking):
    """Fires after `after` steps where the test accuracy is that of guessing, or of the model before its first update,
    though the training batches are right far more often; or where the run stands still besides. The accuracy at the end
    of the run counts as one more measurement."""

    rule = "nothing_learned"
    after: int = 100

    _seen: int = 0  # measurements

    def look(self, history: History, state: Progress) -> None:
        steps, accuracies = history.measured("test_accuracy", self._seen)
        self._seen = len(history)
        if len(steps) and steps[-1]:
            self._judge(history, state, int(steps[-1]), float(accuracies[-1]))

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None:
        self._judge(history, progress.at(history), len(history), accuracy)
        return self._finding

    def _judge(self, history: History, state: Progress, step: int, accuracy: float) -> None:
        """Judge the accuracy on the test set that was measured before a step."""
        if not len(history):
            return
        start = history.value("test_accuracy", 0)
        above = state.above_guessing(accuracy, start)
        apart = above <= MOVED and state.accuracy > accuracy + 2 * RISEN
        standing = above <= RISEN and (state.stuck or state.lost)
        if state.broken or step < self.after or not (apart or standing):
            self._forgive(history, step, accuracy)
            return
        began = f", and was {percent(start)} before the first update" if math.isfinite(start) else ""
        guess = f" Guessing gets about {percent(state.guess)}." * math.isfinite(state.guess)
        right = f" Of the last training batches {percent(state.accuracy)} were right." * math.isfinite(state.accuracy)
        self.tell(
            history, "critical", "No better than guessing",
            f"{_when(history, step)} the accuracy on the test set is {percent(accuracy)}{began}."
                f"{guess}{right}",
            "In evaluation the model computes something else than in training, or it only knows the training examples "
                "by heart."
            if apart
            else "The run is about where it began: the model is of no use for its task.",
        )  # fmt: skip

    def _forgive(self, history: History, step: int, accuracy: float) -> None:
        """Tell in the past of an accuracy that has risen since."""
        if self._finding is not None and self._finding.severity != "info":
            self.tell(
                history, "info", "No better than guessing for a while",
                f"At step {self._finding.first_step:,} the accuracy on the test set was still that of guessing. "
                    f"{_when(history, step)} it is {percent(accuracy)}.",
                "The run has learned since then.",
            )  # fmt: skip


def _when(history: History, step: int) -> str:
    return "At the end" if step == len(history) else f"At step {step:,}"
