"""Clipping that never acts, because its limit is above every norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import clipping_limit
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import Looking
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class ClippingNever(Looking):
    """Fires where clipping is on and none of the last `after` steps was clipped. It is a warning where the norm grew to
    `times` its smallest value and the run failed: the limit is too high."""

    rule = "clipping_never"
    after: int = 200
    times: float = 10.0

    def look(self, history: History, state: Progress) -> None:
        if not history.settings or history.settings[-1][1].clipping == "none":
            return
        since, settings = history.settings[-1]
        if not (state.broken or (state.lost and self._finding is None) or len(history) % self.after == 0):
            return
        start = max(len(history) - self.after, since)
        norms, coefs = history.column("grad_norm", start), history.column("clip_coef", start)
        finite = norms[np.isfinite(norms)]
        if not len(finite) or (coefs[np.isfinite(norms)] < 1).any() or (len(coefs) < self.after and not state.broken):
            return
        largest = float(finite.max())
        if largest > 1.001 * clipping_limit.largest(settings, history):
            return  # it is called where it cannot act: see clip_without_effect
        useless = state.failing and largest > self.times * float(finite.min()) and largest > 1
        knob = clipping_limit.knob_of(settings.clipping)
        self.tell(
            history,
            "warning" if useless else "info",
            "Clipping never acts",
            f"No step was clipped with a limit of {number(settings.limit)}; the largest gradient norm was "
            f"{number(largest)}.",
            "No gradient reached the limit, so clipping could not help. Lower it."
            if useless
            else "No gradient has reached the limit so far, so nothing is clipped. This does no harm.",
            (f"{knob}={min(1.0, settings.limit / 10):.3g}",) if useless and knob == "clipping.max_norm" else (),
        )
