"""Ranks whose weights have diverged from each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class RanksApart(PeriodicRule):
    """Fires if the latest measured distance between the weights of two ranks exceeds `share` of their norm. Equal
    updates of equal weights leave none."""

    rule = "ranks_apart"
    share: float = 1e-4

    _seen: int = 0
    _until: int = 0  # the row after those that requested reductions
    _reduced: bool = False

    def look(self, history: History, state: Progress) -> None:
        if not len(history.ranks):
            return
        steps, drifts = history.measurements("rank_drift", self._seen)
        self._seen = len(history)
        if not len(steps) or not (math.isfinite(drifts[-1]) and drifts[-1] > self.share):
            return
        step = int(steps[-1])
        self._reduced |= bool(history.column("all_reduces", self._until, step + 1).any())
        self._until = step + 1
        alone = " No gradient was reduced up to there: every backward pass stood within no_sync()."
        why = "" if self._reduced else alone
        self.tell(
            history, "critical", "Ranks drift apart",
            f"Before step {step:,} the weights of a rank were {number(drifts[-1])} of their norm away from those of "
                f"rank 0.{why}",
            "Each rank trains a model of its own, on its own share of the data. What is saved is that of rank 0.",
            ("distributed.never_synced=false",), first=int(steps[drifts > self.share][0]),
        )  # fmt: skip
