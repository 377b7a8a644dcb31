"""Clipping is on, and gradients beyond its limit reach the optimizer all the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.rules.looking import Looking
from gradstudio.core.rules.progress import Progress
from gradstudio.core.rules.reached import largest
from gradstudio.core.text import number


@dataclass
class ClipWithoutEffect(Looking):
    """Fires where the norm that reached the optimizer was above what clipping leaves of any gradient, by more than rounding (`times`)."""

    rule = "clip_without_effect"
    times: float = 1.01

    _seen: int = 0
    _count: int = 0
    _peak: float = 0.0

    def look(self, history: History, state: Progress) -> None:
        seen, self._seen = self._seen, len(history)
        if not history.settings:
            return
        start = max(seen, history.settings[-1][0])
        limit = largest(history.settings[-1][1], history)
        if history.settings[-1][1].clipping == "none" or limit == np.inf:
            return
        reached = history.column("clipped_norm", start)
        if reached.max() <= limit:
            return
        beyond = np.flatnonzero((reached > self.times * limit) & np.isfinite(reached) & (history.column("skipped", start) == 0))
        if not len(beyond):
            return
        self._count += len(beyond)
        self._peak = max(self._peak, float(reached[beyond].max()))
        self.tell(
            history, "warning", "Clipping has no effect",
            f"The limit leaves a norm of {number(limit)} at most, but {number(self._peak)} reached the optimizer ({self._count:,} steps were beyond it).",
            "Clipping stands where it acts on nothing: after the step, or on something else than the gradient that is used.",
            ("mistakes.clip_after_step=false", "mistakes.clip_each_micro_batch=false"), first=start + int(beyond[0]),
        )  # fmt: skip
