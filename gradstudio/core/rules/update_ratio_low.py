"""Updates that are too small to change the weights while the loss is still high: the learning rate is too low."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import weight_decay
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import HARDLY, Progress
from gradstudio.core.diagnosis.rule import Looking
from gradstudio.core.diagnosis.suggested_rate import fitting_rate
from gradstudio.core.history import History, up_to
from gradstudio.core.text import number


@dataclass
class UpdateRatioLow(Looking):
    """Fires at a median |update| / |weights| below `ratio` over the last steps, while the learning rate does not rise
    and the loss stands still: in a run that has learned almost nothing, or less than the task promises. At the end of a
    run it fires too where the rate still rises. A gradient of exactly 0 is no matter of the rate.

    1e-4 is TheDeepChecker's lower end (log10 < -4). Small updates are no fault while the loss falls."""

    rule = "update_ratio_low"
    ratio: float = 1e-4
    after: int = 80  # steps
    usual: float = 1e-2  # an update of that size before shows that the rate is not to blame
    window: int = 50

    def _since(self, history: History) -> int:
        """Return the first of the latest updates in a row that were below the ratio."""
        large = np.flatnonzero(~(history.column("update_ratio") < self.ratio))
        return min(int(large[-1]) + 1 if len(large) else 0, len(history) - 1)

    def look(self, history: History, state: Progress) -> None:
        if len(history) < self.after or not (state.stuck or state.halted):
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
        since, lr = self._since(history), history.value("lr", len(history) - 1)
        before = history.column("update_ratio", 0, since)
        if (before > self.usual).any() and lr > 0.5 * history.value("lr", since - 1):
            return  # the rate was high enough while there was a gradient
        norms = history.column("clipped_norm", len(history) - self.window)
        if median(norms) == 0 and lr > 0:
            return
        if weight_decay.outweighs(history, len(history) - len(latest), len(history)):
            return  # what is left of the update is not the rate's
        fit = fitting_rate(history)
        highest = float(history.column("lr").max())
        remedies = (
            *(("schedule.kind=constant",) if lr < 0.5 * highest else ()),  # a higher rate falls as far
            *((f"schedule.warmup_steps={len(history) // 10}",) if state.warming else ()),
            *((f"optimizer.lr={fit:.2g}",) if fit is not None and fit > lr and not state.warming else ()),
        )  # offered_remedies.py adds the usual one
        self.tell(
            history, "warning", "Updates too small",
            f"The median of the {len(latest)} updates {up_to(history)} is {number(ratio)} times as large as the "
            f"weights (about 0.001 is usual), at a learning rate of {number(lr)}"
            f"{', which still rises' if state.warming else ''}. {state.course()}",
            f"Together they moved the weights by at most {number(float(np.nansum(latest)))} times "
                "their norm in all.", remedies, first=since,
        )  # fmt: skip
