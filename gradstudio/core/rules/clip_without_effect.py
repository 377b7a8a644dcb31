"""Clipping that is switched on while gradients above its limit reach the optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.clipping_limit import largest
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number, plural


@dataclass
class ClipWithoutEffect(PeriodicRule):
    """Fires if the norm that reached the optimizer was more than `times` the largest that clipping leaves of any
    gradient; `times` leaves room for rounding."""

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
        beyond = np.flatnonzero(
            (reached > self.times * limit) & np.isfinite(reached) & (history.column("skipped", start) == 0)
        )
        if not len(beyond):
            return
        self._count += len(beyond)
        self._peak = max(self._peak, float(reached[beyond].max()))
        ranks = history.ranks.ranks
        if ranks > 1 and self._peak <= self.times * limit * math.sqrt(ranks):
            self._tell_of_shards(history, limit, ranks, start + int(beyond[0]))
            return
        self.tell(
            history, "warning", "Clipping has no effect",
            f"Clipping should leave a norm of at most {number(limit)}, but a norm of {number(self._peak)} reached the "
                f"optimizer ({plural(self._count, 'step was', 'steps were')} above the limit).",
            "Clipping is called in the wrong place: after the optimizer's step, before the backward pass, or on a "
                "gradient that the optimizer does not use.",
            tuple(f"mistakes.{name}=false" for name in ("clip_after_step", "clip_before_backward")),
            first=start + int(beyond[0]),
        )  # fmt: skip

    def _tell_of_shards(self, history: History, limit: float, ranks: int, first: int) -> None:
        """Report norms that are no larger than those of shards that are each within the limit."""
        self.tell(
            history, "warning", "Clipping leaves too large a norm",
            f"Clipping should leave a norm of at most {number(limit)}, but a norm of {number(self._peak)} reached the "
                f"optimizer ({plural(self._count, 'step was', 'steps were')} above the limit). {ranks} shards that "
                f"each have the limit have a norm of {number(limit * math.sqrt(ranks))} together.",
            "It looks as if each rank clips its shard of the gradient by the norm of that shard alone. The norm of the "
                "gradient is the root of the sum of their squares, over all ranks.",
            ("distributed.clip_shards=false",), first=first,
        )  # fmt: skip
