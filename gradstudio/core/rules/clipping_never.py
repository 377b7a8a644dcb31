"""Clipping that never does anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.rules.looking import Looking
from gradstudio.core.rules.progress import Progress
from gradstudio.core.text import number


@dataclass
class ClippingNever(Looking):
    """Fires where clipping is on and no step of the last `after` was clipped. It is a warning where the norm grew to `times` its smallest and
    the run broke: the limit is too high."""

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
        useless = state.failing and largest > self.times * float(finite.min()) and largest > 1
        knob = {"value": "clip_value", "agc": "agc_factor"}.get(settings.clipping, "max_norm")
        self.tell(
            history, "warning" if useless else "info", "Clipping does nothing",
            f"No step was clipped at {number(settings.limit)}; the largest gradient norm was {number(largest)}.",
            "A limit above every norm is none." if useless else "The limit is above every norm so far, which does no harm.",
            (f"clipping.{knob}={min(1.0, settings.limit / 10):.3g}",) if useless and settings.clipping in ("norm", "per_layer") else (),
        )  # fmt: skip
