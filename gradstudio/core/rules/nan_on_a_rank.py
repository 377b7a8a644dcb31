"""The rank that brought the first NaN or Inf, which the mean then takes to all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import Looking
from gradstudio.core.history import History
from gradstudio.core.text import listed, number


@dataclass
class NanOnARank(Looking):
    """Fires where, at the first step that is not finite, some ranks' own gradients are not finite and others are."""

    rule = "nan_on_a_rank"

    _told_once: bool = False

    def look(self, history: History, state: Progress) -> None:
        step = len(history) - 1
        if self._told_once or not history.broken or len(history.ranks) <= step:
            return
        self._told_once = True
        norms = history.ranks.rows(step, step + 1)[0, :, 0]
        broken, sound = np.flatnonzero(~np.isfinite(norms)), np.flatnonzero(np.isfinite(norms))
        if not len(broken) or not len(sound):
            return
        ranks = "rank " + str(broken[0]) if len(broken) == 1 else "ranks " + listed(broken.tolist())
        self.tell(
            history, "critical", f"NaN or Inf on {ranks}",
            f"At step {step:,}, before the gradients were averaged, that of {ranks} was not finite, and that of rank "
                f"{sound[0]} had a norm of {number(float(norms[sound[0]]))}.",
            "The mean over the ranks takes it to all of them, and so does the next update. Look at the share of the "
                f"batch that {ranks} had.",
            ("problem.nan_every=0",), first=step,
        )  # fmt: skip
