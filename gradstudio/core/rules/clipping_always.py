"""Clipping that shortens every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.clipping_limit import knob_of
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import RISEN, Progress
from gradstudio.core.diagnosis.rule import Looking
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class ClippingAlways(Looking):
    """Fires where more than `share` of the last `window` steps were clipped. It is a warning where clipping left less
    than `left` of the norm and the run learns almost nothing. (A public watcher already warns at 5 % of 300 steps; many
    healthy runs clip more.)"""

    rule = "clipping_always"
    share: float = 0.95
    left: float = 0.1
    slow: float = 0.85  # share of the first loss that is left
    window: int = 300
    after: int = 60  # steps before the first look, and between two looks

    def look(self, history: History, state: Progress) -> None:
        if len(history) % self.after or not (history.settings and history.settings[-1][1].clipping != "none"):
            return
        coefs = history.column("clip_coef", max(len(history) - self.window, history.settings[-1][0]))
        share = np.count_nonzero(coefs < 1) / len(coefs) if len(coefs) else 0.0
        if len(coefs) < self.after or share < self.share:
            self.soften(not state.well)
            return
        coef = median(coefs)
        limit = history.settings[-1][1].limit
        norm = median(history.column("grad_norm", len(history) - self.after))
        knob = knob_of(history.settings[-1][1].clipping)
        self.tell(
            history,
            "warning" if coef < self.left and (state.stuck or state.lost or self._slow(state)) else "info",
            "Every step is clipped",
            f"{100 * share:.0f} % of the last {len(coefs):,} steps were clipped, to {number(coef)} of their norm in "
            f"the median; the norm is about {number(norm)}.",
            "Clipping decides the size of every gradient. With SGD the effective learning rate is lower by that "
            "factor; "
            "Adam divides the factor out again.",
            (f"{knob}={min(limit / max(coef, 1e-6), 1e3):.3g}", "clipping.kind=none") if coef < self.left else (),
        )

    def _slow(self, state: Progress) -> bool:
        return state.recent > self.slow * state.start and not state.accuracy > state.start_accuracy + 2 * RISEN
