"""A momentum of 1, or so close to it that no update is forgotten, in a run that does badly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class MomentumHigh(PeriodicRule):
    """Fires at a momentum above `most` that has been in force for `after` steps, in a run that does badly or not yet
    well. The threshold is our own: 0.9 to 0.99 is usual (Sutskever 2013 goes up to 0.995), and remembers an update for
    10 to 200 steps."""

    rule = "momentum_high"
    most: float = 0.998
    after: int = 20

    def look(self, history: History, state: Progress) -> None:
        since, settings = history.settings[-1] if history.settings else (0, None)
        if settings is None or not settings.momentum > self.most or len(history) < since + self.after:
            self.soften(not state.well)
            return
        if not (state.struggling or state.worse):
            self.soften(not state.well)
            return
        recent = history.column("update_cosine", max(since, len(history) - 50))
        recent = recent[np.isfinite(recent)]
        cosine = (
            f" The median cosine of the last {len(recent)} updates with their own gradients is "
            f"{number(median(recent), 2)}."
            if len(recent)
            else ""
        )
        norms = [number(history.value("weight_norm", step)) for step in (since, len(history) - 1)]
        kept = (
            "An update keeps all of those before it, without any loss: their sum only grows or swings."
            if settings.momentum >= 1
            else f"An update is carried on for about {number(1 / (1 - settings.momentum))} steps."
        )
        self.tell(
            history, "critical" if state.failing else "warning", "Momentum too high",
            f"Momentum has been {number(settings.momentum, 4)} since step {since:,}.{cosine} The norm of the weights "
                f"was {norms[0]} at step {since:,}, and is {norms[1]} at step {len(history) - 1:,}.",
            kept, ("optimizer.momentum=0.9", "optimizer.momentum=0"), first=since,
        )  # fmt: skip
