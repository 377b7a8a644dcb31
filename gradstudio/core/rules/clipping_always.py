"""Clipping that shortens every step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradstudio.core.diagnosis.clipping_limit import knob_of
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import RISEN, Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History, up_to
from gradstudio.core.text import number


@dataclass
class ClippingAlways(PeriodicRule):
    """Fires if more than `share` of the last `window` steps were clipped. It is a warning if clipping left less than
    `left` of the norm, updates are smaller than `usual`, and the run learns almost nothing, or has stopped learning. (A
    public watcher already warns at 5 % of 300 steps; many healthy runs clip more.)"""

    rule = "clipping_always"
    share: float = 0.95
    left: float = 0.1
    usual: float = 1e-3  # |update| / |weights| from which on clipping is not what makes a run slow
    slow: float = 0.85  # share of the first loss that is left
    window: int = 300
    after: int = 60  # steps before the first look, and between two looks

    def look(self, history: History, state: Progress) -> None:
        if len(history) % self.after and not history.broken:
            return
        if not history.settings or history.settings[-1][1].clipping == "none":
            self._end(history)
            return
        if len(history) % self.after:
            return
        coefs = history.column("clip_coef", max(len(history) - self.window, history.settings[-1][0]))
        clipped = np.count_nonzero(coefs < 1)
        if len(coefs) < self.after or clipped < self.share * len(coefs):
            self.soften(not state.well)
            return
        coef, limit = median(coefs), history.settings[-1][1].limit
        if coef == 0 and limit > 0:
            return  # not by clipping, or the norm overflowed: clip_overflow.py reports that
        norm = median(history.column("grad_norm", len(history) - self.after))
        knob = knob_of(history.settings[-1][1].clipping)
        higher = (f"{knob}={min(limit / max(coef, 1e-6), 1e3):.3g}",) if limit > 0 else ()
        small = not median(history.column("update_ratio", len(history) - self.after)) > self.usual
        slow = state.stuck or state.has_stalled or state.has_lost or self._slow(state)
        tight = coef < self.left and small and slow
        first = len(history) - len(coefs)
        if tight:
            first += self._since(coefs)
            if self._finding is not None and self._finding.severity == "info":
                self._finding = None  # the reported steps clipped less
        self.tell(
            history,
            "warning" if tight else "info",
            "Every step is clipped" if clipped == len(coefs) else "Nearly every step is clipped",
            f"{clipped:,} of the {len(coefs):,} steps {up_to(history)} were clipped. In the median, clipping left "
            f"{number(coef)} of the norm; the median norm of the latest {self.after} before it was {number(norm)}.",
            self._meaning(history, coef, tight),
            (*higher, "clipping.kind=none") if tight else (),
            first=first,
        )

    def _since(self, coefs: np.ndarray) -> int:
        """Return the start of the latest stretch, of `after` steps or more, in which clipping nearly always left so
        little."""
        little = np.cumsum((coefs < self.left)[::-1]) >= self.share * np.arange(1, len(coefs) + 1)
        enough = np.flatnonzero(little[self.after - 1 :])
        start = len(coefs) - self.after - int(enough[-1]) if len(enough) else 0
        return start + int(np.argmax(coefs[start:] < self.left))

    def _end(self, history: History) -> None:
        """Report, in the past tense, clipping that was switched off."""
        if self._finding is not None and self._finding.severity != "info":
            last = self._finding.last_step
            self._finding = replace(
                self._finding, severity="info", title=f"{self._finding.title}, until step {last:,}",
                meaning=f"Clipping has been off since step {history.settings[-1][0]:,}.", remedies=(),
            )  # fmt: skip

    def _meaning(self, history: History, coef: float, tight: bool) -> str:
        settings = history.settings[-1][1]
        parts = ["Clipping decides the size of these gradients."]
        if settings.clipping != "norm":
            cosines = history.column("clip_cosine", len(history) - self.after)
            cosines = cosines[np.isfinite(cosines)]
            if len(cosines) and (cosine := number(median(cosines))) != number(1.0):
                parts.append(f"It changes their direction too: the median cosine is {cosine}.")
        match settings.optimizer:
            case "sgd" if settings.clipping == "norm":
                parts.append(f"The effective learning rate is about {number(coef)} of the one that is set.")
            case "adam" | "adamw" | "rmsprop" if tight:
                norm = median(history.column("clipped_norm", len(history) - self.after))
                entry = norm / math.sqrt(max(sum(layer.size for layer in history.layers), 1))
                parts.append(
                    f"An entry of what is left is about {number(entry)} (root mean square). The optimizer divides such "
                    "a factor out only where that is far above its eps."
                )
            case "adam" | "adamw" | "rmsprop":
                parts.append(
                    "A factor that is the same at every step has no effect here as long as what is left "
                    "is far above the optimizer's eps: it is divided out."
                )
        return " ".join(parts)

    def _slow(self, state: Progress) -> bool:
        return state.recent > self.slow * state.start and not state.accuracy > state.start_accuracy + 2 * RISEN
