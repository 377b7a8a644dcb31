"""Updates that are too small to change the weights while the loss is still high: the learning rate is too low."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import weight_decay
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import HARDLY, Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.suggested_rate import CLEARLY, fitting_rate
from gradstudio.core.history import History, up_to
from gradstudio.core.text import number


@dataclass
class UpdateRatioLow(PeriodicRule):
    """Fires at a median |update| / |weights| below `ratio` over the last steps, while the learning rate does not rise
    and the loss stagnates: in a run that has learned almost nothing, or less than the task promises. At the end of a
    run it fires even if the rate still rises. A gradient of exactly 0 does not depend on the rate.

    1e-4 is TheDeepChecker's lower end (log10 < -4). Small updates are no fault while the loss falls."""

    rule = "update_ratio_low"
    ratio: float = 1e-4
    after: int = 80  # steps
    usual: float = 1e-2  # an earlier update of that size shows that the rate is not to blame
    window: int = 50

    _seen: int = 0  # rows
    _since: int = 0  # the first of the latest consecutive updates that were below the ratio
    _usual_step: int = -1  # the first one above the usual size
    _highest: float = -math.inf  # learning rate

    def look(self, history: History, state: Progress) -> None:
        if len(history) < self.after or not (state.stuck or state.has_stalled):
            self.soften(not state.well)
            return
        self._judge(history, state)

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None:
        """Judge a run that ended within its warmup."""
        state = progress.at(history)
        if len(history) >= self.after and state.warming and state.recent > HARDLY * state.reference:
            self._judge(history, state)
        return self._finding

    def _judge(self, history: History, state: Progress) -> None:
        latest = history.column("update_ratio", len(history) - self.window)
        ratio = median(latest)
        if not ratio < self.ratio:
            return
        self._take(history)
        since, lr = min(self._since, len(history) - 1), history.value("lr", len(history) - 1)
        if 0 <= self._usual_step < since and lr > 0.5 * history.value("lr", since - 1):
            return  # the rate was high enough while there was a gradient
        norms = history.column("clipped_norm", len(history) - self.window)
        if median(norms) == 0 and lr > 0:
            return
        if weight_decay.outweighs(history, len(history) - len(latest), len(history)):
            return  # the rest of the update does not come from the rate
        fit = fitting_rate(history)
        higher = fit if fit is not None and fit > CLEARLY * max(lr, self._highest) and not state.warming else None
        remedies = (
            *(("schedule.kind=constant",) if lr < 0.5 * self._highest else ()),  # a higher rate falls as far
            *((f"schedule.warmup_steps={len(history) // 10}",) if state.warming else ()),
            *((f"optimizer.lr={higher:.2g}",) if higher is not None else ()),
        )  # offered_remedies.py adds the usual one
        moved = float(np.nansum(latest))
        self.tell(
            history, "warning", "Updates too small",
            f"The median of the {len(latest)} updates {up_to(history)} is {number(ratio)} times as large as the "
            f"weights (about 0.001 is usual), at a learning rate of {number(lr)}"
            f"{', which still rises' if state.warming else ''}. {state.course()}",
            f"Together they moved the weights by at most {number(moved)} times their norm in all."
                if moved else "None of them changed a weight.", remedies, first=since,
        )  # fmt: skip

    def _take(self, history: History) -> None:
        """Read the new rows."""
        ratios, start = history.column("update_ratio", self._seen), self._seen
        large, usual = np.flatnonzero(~(ratios < self.ratio)), np.flatnonzero(ratios > self.usual)
        self._since = start + int(large[-1]) + 1 if len(large) else self._since
        self._usual_step = start + int(usual[0]) if self._usual_step < 0 and len(usual) else self._usual_step
        if len(ratios):
            self._highest = float(np.maximum(self._highest, history.column("lr", start).max()))
        self._seen = len(history)
