"""Weight decay that moves the weights more than the gradient does, in a run that does badly."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis import weight_decay
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import Looking
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class WeightDecayHigh(Looking):
    """Fires where the norm of the weights fell below `left` of what it was within `window` steps, or the decay of a
    step takes more than all of the weights, while the decay was larger than the gradient in most of these steps.

    Usual decays take 1e-6 to 1e-3 of the weights at a step, and so half of them in 700 steps or more: one epoch or
    longer (Wang and Aitchison 2024)."""

    rule = "weight_decay_high"
    left: float = weight_decay.LEFT
    window: int = weight_decay.WINDOW

    _first: int | None = None  # the first step at which the decay was larger

    def look(self, history: History, state: Progress) -> None:
        if not any(settings.weight_decay for _, settings in history.settings):
            return
        if self._first is None:
            self._first = weight_decay.fall(history, len(history), self.left, self.window)
        if self._first is None:
            return
        if not state.struggling:
            self.soften(not state.well)
            return
        last = len(history) - 1
        before, now = (history.value("weight_norm", step) for step in (self._first, last))
        self.tell(
            history, "critical" if state.failing else "warning", "Weight decay too strong",
            f"{weight_decay.describe_decay(history, self._first)} The norm of the weights was {number(before)} at step "
                f"{self._first:,}, and is {number(now)} at step {last:,}.",
            "The decay moves the weights more than the loss does. It acts after clipping, which does not "
                "limit it.",
            weight_decay.lower(history, self._first), first=self._first,
        )  # fmt: skip
