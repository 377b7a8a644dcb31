"""Ranks that clip their own gradients and average them afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.text import number


@dataclass
class ClipBeforeReduction(PeriodicRule):
    """Fires if clipping by norm leaves less than `share` of both the limit and the mean gradient, in most of the latest
    LOOK_EVERY steps of several ranks. Clipping the mean leaves the smaller of the two."""

    rule = "clip_before_reduction"
    share: float = 0.98

    def look(self, history: History, state: Progress) -> None:
        start = max(len(history) - LOOK_EVERY, 0)
        settings = history.settings[-1][1] if history.settings else None
        if settings is None or settings.clipping != "norm" or not len(history.measurements("all_reduces", start)[0]):
            return
        norms, clipped = history.column("grad_norm", start), history.column("clipped_norm", start)
        due = np.minimum(norms, settings.limit)
        short = np.isfinite(due) & (clipped < self.share * due)
        if 2 * short.sum() <= len(short):
            return
        step = start + int(np.flatnonzero(short)[-1])
        self.tell(
            history, "warning", "Clipped before the mean is taken",
            f"At step {step:,} the mean gradient had norm {number(norms[step - start])} and the limit is "
                f"{settings.limit:g}, but {number(clipped[step - start])} reached the optimizer; so in {short.sum()} "
                f"of the last {len(short)} steps.",
            "Each rank has clipped its own gradient. These are longer than their mean, so more is cut than the limit "
                "asks for, and a rank with a long gradient counts less than the others: the direction changes too.",
            ("distributed.clip_before_all_reduce=false",), first=start + int(np.flatnonzero(short)[0]),
        )  # fmt: skip
