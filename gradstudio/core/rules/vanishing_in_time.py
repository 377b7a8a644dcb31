"""A gradient that does not reach the first time steps of a sequence: the network cannot learn what comes there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class VanishingInTime(PeriodicRule):
    """Fires in a run that fails, or is hardly better than guessing, if the median of the latest `looks` ratios of the
    gradient by the first and by the last time step's input is below `ratio`. Networks of 25 steps that learned had 0.2
    to 6, those that did not 1e-6 to 0.05. In a network that learns later, an early look may show less."""

    rule = "vanishing_in_time"
    ratio: float = 0.01
    looks: int = 3
    above: float = 0.1  # accuracy beyond guessing with which a run knows something

    _seen: int = 0  # rows
    _latest: list[tuple[int, float]] = field(default_factory=list)  # steps and ratios

    def look(self, history: History, state: Progress) -> None:
        steps, ratios = history.measurements("time_gradient", self._seen)
        self._seen = len(history)
        found = [(step, ratio) for step, ratio in zip(steps.tolist(), ratios.tolist(), strict=True) if ratio >= 0]
        self._latest = [*self._latest, *found][-self.looks :]
        knows = state.accuracy >= state.promised and state.above_guessing(state.accuracy, state.guess) > self.above
        badly = state.failing or (state.struggling and not knows)
        usual = median(np.array([ratio for _, ratio in self._latest])) if self._latest else np.inf
        if len(self._latest) < self.looks or not badly or usual >= self.ratio:
            self.soften(badly)
            return
        self.tell(
            history, "critical" if state.failing else "warning", "The gradient does not reach the first time steps",
            f"At the {self.looks} looks up to step {self._latest[-1][0]:,} the gradient by the input of the first time "
            f"step was {number(usual)} times as long as that by the input of the last one (median).",
            "On its way back it is multiplied by one Jacobian for each time step, and these shrink it. What stands "
            "early in the sequence hardly changes a weight, so it is not learned so far.",
            ("model.kind=gru", "model.init=orthogonal"), first=self._latest[0][0],
        )  # fmt: skip
