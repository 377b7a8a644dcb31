"""Clipping that never acts, because its limit is above every norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import clipping_limit
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number

# What the limit applies to, if not to the whole gradient.
_LIMITED = {
    "value": "entry of a gradient", "per_tensor": "gradient of a tensor", "per_module": "gradient of a module",
    "per_network": "gradient of a network", "agc": "gradient of a unit", "per_example": "gradient of an example",
}  # fmt: skip


@dataclass
class ClippingNever(PeriodicRule):
    """Fires if clipping is on and none of the last `after` steps was clipped. It is a warning if the norm grew to
    `times` its smallest value and the run failed: the limit is too high."""

    rule = "clipping_never"
    after: int = 200
    times: float = 10.0

    def look(self, history: History, state: Progress) -> None:
        if not history.settings or history.settings[-1][1].clipping in ("none", "zclip", "adagc"):
            return  # the last two have no limit that could be too high
        since, settings = history.settings[-1]
        if not (state.broken or (state.has_lost and self._finding is None) or len(history) % self.after == 0):
            return
        start = max(len(history) - self.after, since)
        norms, coefs = history.column("grad_norm", start), history.column("clip_coef", start)
        sound = np.flatnonzero(np.isfinite(norms))
        finite = norms[sound]
        if not len(finite) or (coefs[sound] < 1).any() or (len(coefs) < self.after and not state.broken):
            return
        largest = float(finite.max())
        if largest > 1.001 * clipping_limit.largest(settings, history):
            return  # it is called at a point where it cannot act: see clip_without_effect
        useless = state.failing and largest > self.times * float(finite.min()) and largest > 1
        knob = clipping_limit.knob_of(settings.clipping)
        steps = (
            f"latest {len(coefs):,} steps"
            if len(finite) == len(coefs)
            else f"{len(finite):,} steps with a finite norm among the latest {len(coefs):,}"
        )
        what = _LIMITED.get(settings.clipping, "gradient")
        self.tell(
            history,
            "warning" if useless else "info",
            "Clipping never acts",
            f"None of the {steps} was clipped with a limit of {number(settings.limit)}; the "
            f"largest gradient norm in them was {number(largest)}.",
            f"No {what} reached the limit in these steps"
            + (", so clipping could not help. Lower it." if useless else ". This does no harm."),
            (f"{knob}={min(1.0, settings.limit / 10):.3g}",) if useless and knob == "clipping.max_norm" else (),
            last=start + int(sound[-1]),
        )
