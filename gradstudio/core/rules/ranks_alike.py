"""Ranks that have the same data, so that all but one contribute nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.text import number


@dataclass
class RanksAlike(PeriodicRule):
    """Fires if the ranks' own gradients had the same norm, within `rounding` of it, at each of the latest LOOK_EVERY
    steps. Norms of different examples differ sooner or later."""

    rule = "ranks_alike"
    rounding: float = 1e-6

    def look(self, history: History, state: Progress) -> None:
        if not len(history.ranks):
            return
        start = max(len(history) - LOOK_EVERY, 0)
        norms = history.ranks.column("norm", start, len(history))
        if len(norms) < LOOK_EVERY or not np.isfinite(norms).all():
            return
        least, most = norms.min(axis=1), norms.max(axis=1)
        if not (least > 0).all() or (most - least > self.rounding * most).any():
            return
        self.tell(
            history, "warning", "Ranks have the same data",
            f"At each of the last {len(norms)} steps all {norms.shape[1]} ranks had a gradient of the same norm, "
                f"{number(float(most[-1]))} at step {len(history) - 1:,}.",
            "The mean of equal gradients is that of one rank, so the others add nothing: the effective batch is the "
                "share of one rank. A DistributedSampler gives each its own.",
            ("distributed.same_data=false",), first=start,
        )  # fmt: skip
