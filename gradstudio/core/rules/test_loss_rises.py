"""A loss on the validation set that rises while the model goes on training."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class TestLossRises(PeriodicRule):
    """Fires if the `times` latest validation losses that a script logs are each above `higher` of the lowest one. It is
    a note while the training loss rises as well, as then the run does badly in both. (Keras' EarlyStopping has no such
    limit; public watchers take 3 to 5 validations.)"""

    rule = "test_loss_rises"
    times: int = 3
    higher: float = 1.05

    _seen: int = 0  # notes

    def look(self, history: History, state: Progress) -> None:
        if len(history.logged) == self._seen:
            return
        self._seen = len(history.logged)
        steps, losses = history.logged_as("val_loss")
        losses = [loss if math.isfinite(loss) else math.inf for loss in losses]
        lowest = min(losses, default=math.inf)
        latest = losses[-self.times :]
        rises = len(losses) > self.times and lowest > 0 and min(latest) > self.higher * lowest
        if not rises or state.broken:
            self.soften(False)
            return
        at = steps[losses.index(lowest)]
        self.tell(
            history, "info" if state.has_lost else "warning", "The validation loss rises",
            f"It was lowest at step {at:,}, {number(lowest)}; the latest {self.times} are above that, and the last, at "
                f"step {steps[-1]:,}, is {number(losses[-1])}. {state.course()}",
            "The model fits its training batches better than other data. Take the weights of the lowest validation "
                "loss; more data, weight decay or dropout move that point.",
            first=None if self._finding else min(at, len(history) - 1),
        )  # fmt: skip
