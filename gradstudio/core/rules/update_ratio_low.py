"""Updates too small to change anything, while there is still much to learn: the learning rate is too low."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.history import History
from gradstudio.core.rules.looking import Looking
from gradstudio.core.rules.median import median
from gradstudio.core.rules.progress import Progress
from gradstudio.core.rules.rates import fitting_rate
from gradstudio.core.text import number


@dataclass
class UpdateRatioLow(Looking):
    """Fires at a median |update| / |weights| below `ratio` over the last steps, while the loss stands still and the rate does not rise.

    1e-4 is TheDeepChecker's lower end (log10 < -4). Beside a loss that falls small updates are no fault.
    """

    rule = "update_ratio_low"
    ratio: float = 1e-4
    after: int = 80  # steps
    window: int = 50

    def look(self, history: History, state: Progress) -> None:
        if len(history) < self.after or not state.stuck:
            self.soften(not state.well)
            return
        ratio = median(history.column("update_ratio", len(history) - self.window))
        if not ratio < self.ratio:
            return
        lr = history.value("lr", len(history) - 1)
        fit = fitting_rate(history)
        remedies = (f"optimizer.lr={fit:.2g}",) if fit is not None and fit > lr else ()  # remedies.py adds the usual one
        self.tell(
            history, "warning", "Updates too small",
            f"An update changes the weights by {number(ratio)} of their norm, at a rate of {number(lr)}; about 0.001 is usual. "
            f"The loss went from {number(state.start)} to {number(state.recent)} in {len(history):,} steps.",
            "At this pace the weights stay where they were drawn.", remedies,
        )  # fmt: skip
