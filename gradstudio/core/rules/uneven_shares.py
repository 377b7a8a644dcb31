"""Ranks with shares of different sizes whose gradients count the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.text import number, percent


@dataclass
class UnevenShares(PeriodicRule):
    """Fires if in `share` of the latest LOOK_EVERY steps an example of one rank weighed more than `times` as much as
    one of another."""

    rule = "uneven_shares"
    share: float = 0.04
    times: float = 1.1

    def look(self, history: History, state: Progress) -> None:
        if not len(history.ranks):
            return
        start = max(len(history) - LOOK_EVERY, 0)
        weights = history.ranks.column("weight", start, len(history))
        if len(weights) < LOOK_EVERY:
            return
        ratios = weights.max(axis=1) / weights.min(axis=1)
        uneven = np.flatnonzero(ratios > self.times)
        if len(uneven) < self.share * len(weights):
            return
        latest = weights[uneven[-1]]
        heavy, light = int(latest.argmax()), int(latest.argmin())
        self.tell(
            history, "warning", "Ranks have uneven shares",
            f"At step {start + int(uneven[-1]):,} an example of rank {heavy} weighed "
                f"{number(float(ratios[uneven[-1]]))} times as much in the gradient as one of rank {light}. "
                f"{percent(len(uneven) / len(weights))} of the last {len(weights)} steps had such shares.",
            "The mean over the ranks counts each rank the same, however many examples it had. It is another gradient "
                "than that of the whole batch.",
            ("distributed.weigh_shares=true", "distributed.uneven_every=0"), first=start + int(uneven[0]),
        )  # fmt: skip
