"""A rank that has fewer batches than the others, which will wait for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import join_with_and, plural


@dataclass
class RankRanOut(PeriodicRule):
    """Fires at the last step in which all ranks take part, if some of them continue."""

    rule = "rank_ran_out"
    every_row = True

    def update(self, history: History, progress: Progress) -> Finding | None:
        if len(history.ranks):
            self.look(history, progress)
        return self._finding

    def look(self, history: History, state: Progress) -> None:
        step = len(history) - 1
        left = history.ranks.column("left", step, step + 1).ravel()
        out = np.flatnonzero(left == 0)
        if not len(out) or not left.any():
            return
        one = len(out) == 1
        ranks, goes_on = f"{'rank' if one else 'ranks'} {join_with_and(out.tolist())}", int(left.argmax())
        self.tell(
            history, "critical", f"{ranks.capitalize()} {'has' if one else 'have'} no batch left",
            f"Step {step:,} is the last one that {ranks} {'has' if one else 'have'} a batch for. Rank {goes_on} has "
                f"batches for {plural(int(left[goes_on]), 'more step', 'more steps')}.",
            "A step needs the gradient of every rank. A rank without batches leaves the training loop, and the others "
                "wait for it in the all-reduce: no error is raised before torch's time limit, by default 30 minutes, "
                "and 10 with NCCL.",
            ("distributed.join=true", "distributed.runs_out_at=0"), first=step,
        )  # fmt: skip
