"""Ranks that reduce their gradients after every micro-batch: no_sync() is missing, or is called where it has no
effect."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import LOOK_EVERY, History


@dataclass
class ReducedTooOften(PeriodicRule):
    """Fires if each of the latest LOOK_EVERY steps had more than `most` all-reduces."""

    rule = "reduced_too_often"
    most: int = 1

    def look(self, history: History, state: Progress) -> None:
        if not len(history.ranks):
            return
        start = max(len(history) - LOOK_EVERY, 0)
        steps, calls = history.measurements("all_reduces", start)
        if not len(steps) or calls.min() <= self.most:
            return
        count, size = int(calls[-1]), history.value("reduced_bytes", int(steps[-1]))
        self.tell(
            history, "warning", "Gradients reduced too often",
            f"Step {steps[-1]:,} had {count} all-reduces, of {int(size):,} bytes together.",
            f"One is enough: the mean over the ranks of a sum is the sum of the means. So the numbers are right, and "
                f"{count} times as much is sent. Forward and backward pass of all micro-batches but the last belong "
                "in no_sync().",
            ("distributed.no_sync=true", "distributed.forward_outside_no_sync=false"), first=start,
        )  # fmt: skip
