"""A run that is no better than guessing at its task, whatever its loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis import mechanism
from gradstudio.core.diagnosis.cause_ranking import APART
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import MOVED, RISEN, WINDOW, Progress
from gradstudio.core.diagnosis.rule import TestSetRule
from gradstudio.core.history import History, up_to
from gradstudio.core.text import percent
from gradstudio.core.unknown import is_known


@dataclass
class NothingLearned(TestSetRule):
    """Fires after `after` steps if the test accuracy is that of guessing, or of the model before its first update,
    although the accuracy on the training batches is far higher; or if the run also stagnates. The accuracy at the end
    of the run counts as one more measurement; there it is a warning if the loss still falls."""

    rule = "nothing_learned"
    after: int = 100

    def judge(self, history: History, state: Progress, step: int, accuracy: float) -> None:
        start = history.value("test_accuracy", 0)
        above = state.above_guessing(accuracy, start)
        told = self._finding is not None and self._finding.severity == "critical"
        line = RISEN if told else MOVED  # a finding is not withdrawn for a few more examples
        apart = above <= line and self.in_training(history, state) > accuracy + 2 * RISEN
        standing = above <= RISEN and (state.stuck or state.has_lost)
        standing = standing or (above <= MOVED and self._finding is not None)  # it has not risen since it was reported
        if state.broken or step < self.after or not (apart or standing):
            self._forgive(history, step, accuracy)
            return
        began = f", and was {percent(start)} before the first update" if math.isfinite(start) else ""
        trained = (
            f"In training it is {percent(state.accuracy)} in the {min(WINDOW, len(history))} steps {up_to(history)}"
            if state.by_accuracy
            else f"In the {min(WINDOW, len(history))} training batches {up_to(history)}, "
            f"{percent(state.accuracy)} of the examples were right"
        )
        right = f" {trained}." * math.isfinite(state.accuracy)
        self.tell(
            history, "critical",
            APART if apart else "No better than guessing" if above <= MOVED else "Hardly better than guessing",
            f"{self.when(history, step)} the accuracy on the test set is {percent(accuracy)}{began}."
                f"{self._guess(state)}{right}",
            mechanism.reasons_for_test_gap(history, state.batch_normed)
            if apart
            else f"Whatever its loss says, the model is of {'no' if above <= MOVED else 'little'} use for its task so "
            "far.",
            ("model.norm=layer",) if apart and state.batch_normed else (),
        )  # fmt: skip

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None:
        finding, state = super().conclude(history, progress, accuracy), progress.at(history)
        if not is_known(accuracy):
            return finding
        above = state.above_guessing(accuracy, history.value("test_accuracy", 0) if len(history) else math.nan)
        told = finding is not None and finding.severity != "info"
        hardly = above <= RISEN and accuracy < state.promised and not state.has_learned
        if told or state.broken or len(history) < self.after or not (above <= MOVED or hardly):
            return finding
        self.tell(
            history, "warning", f"{'No' if above <= MOVED else 'Hardly'} better than guessing so far",
            f"At the end the accuracy on the test set is {percent(accuracy)}.{self._guess(state)}",
            f"{state.course()} The model has learned {'nothing' if above <= MOVED else 'little'} of what its task is "
            "for. It may need more steps.",
        )  # fmt: skip
        return self._finding

    @staticmethod
    def _guess(state: Progress) -> str:
        return f" Guessing gets about {percent(state.guess)}." if math.isfinite(state.guess) else ""

    def _forgive(self, history: History, step: int, accuracy: float) -> None:
        """Report, in the past tense, an accuracy that has risen since."""
        if self._finding is not None and self._finding.severity != "info":
            self.tell(
                history, "info", "No better than guessing for a while",
                f"At step {self._finding.first_step:,} the accuracy on the test set was still that of guessing. "
                    f"{self.when(history, step)} it is {percent(accuracy)}.",
                "The run has learned since then.",
            )  # fmt: skip
