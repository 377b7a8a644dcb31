"""A loss that swings widely and does not fall."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis import clipping_limit, mechanism
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.suggested_rate import lower
from gradstudio.core.history import LOOK_EVERY, History, up_to
from gradstudio.core.text import number


@dataclass
class LossOscillating(PeriodicRule):
    """Fires if the interquartile range of the last losses exceeds `swing` of the first loss, and `noise` times the
    range in the first steps, while the run does badly. (AutoTrainer counts swings of 0.03 in accuracy; the choice of
    batches alone causes those.)"""

    rule = "loss_oscillating"
    swing: float = 0.5
    noise: float = 4.0

    _noise: float = math.nan  # quantiles 0.75 - 0.25 of the first losses

    def look(self, history: History, state: Progress) -> None:
        if state.by_accuracy:  # the loss of a game swings, and so does that of a policy
            return
        if self._noise != self._noise and len(history) <= LOOK_EVERY:
            self._noise = state.spread
        wide = state.spread > max(self.swing * state.start, self.noise * self._noise) and math.isfinite(state.spread)
        if not (state.is_known and wide and (state.stuck or state.has_lost)):
            self.soften(not state.well)
            return
        lr = history.value("lr", len(history) - 1)
        self.tell(
            history, "warning", "The loss swings",
            f"The middle half of the 50 losses {up_to(history)} lies between {number(state.quarters[0])} and "
            f"{number(state.quarters[1])}. {state.course()}",
            "The updates probably overshoot the minimum: often the learning rate is too high."
            + mechanism.momentum(history),
            (*lower(history, lr)[:1], *clipping_limit.by_norm(history, len(history) - 1), *lower(history, lr)[1:]),
        )  # fmt: skip
