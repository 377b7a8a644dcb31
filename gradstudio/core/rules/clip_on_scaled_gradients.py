"""Gradients that are clipped while they still carry the loss scale, so that almost nothing of them remains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.clipping_limit import largest
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class ClipOnScaledGradients(PeriodicRule):
    """Fires if in `steps` steps the norm that reached the optimizer was at most the limit divided by the loss scale,
    and less than `left` of what clipping should have let through."""

    rule = "clip_on_scaled_gradients"
    steps: int = 3
    left: float = 0.1

    _seen: int = 0
    _count: int = 0

    def look(self, history: History, state: Progress) -> None:
        seen, self._seen = self._seen, len(history)
        if not history.settings or history.settings[-1][1].clipping == "none":
            return
        if history.value("scale", len(history) - 1) <= 1:
            return
        start = max(seen, history.settings[-1][0])
        limit = largest(history.settings[-1][1], history)
        if limit == np.inf:
            return
        scale, norm, reached = (history.column(name, start) for name in ("scale", "grad_norm", "clipped_norm"))
        with np.errstate(invalid="ignore", divide="ignore"):
            due = np.minimum(norm, limit)
            short = (
                (scale > 1)
                & (history.column("skipped", start) == 0)
                & (reached <= 1.01 * limit / scale)
                & (reached < self.left * due)
                & (reached > 0)
            )
        short_steps = np.flatnonzero(short)
        self._count += len(short_steps)
        if not len(short_steps) or self._count < self.steps:
            return
        at = int(short_steps[-1])
        self.tell(
            history, "warning", "Clipping sees the loss scale",
            f"At step {start + at:,} the gradient norm was {number(float(norm[at]))}, and a norm of "
                f"{number(float(reached[at]))} reached the optimizer: "
            f"no more than the limit of {number(limit)} divided by the loss scale of {number(float(scale[at]))}.",
            "Before unscale_, every gradient is multiplied by the loss scale, so clipping leaves almost nothing. "
                "With SGD the weights almost stop moving; Adam divides the factor out, which hides the mistake.",
            ("mistakes.clip_before_unscale=false", "mistakes.clip_each_micro_batch=false"),
            first=start + int(short_steps[0]),
        )  # fmt: skip
