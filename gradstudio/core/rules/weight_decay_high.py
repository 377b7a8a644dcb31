"""Weight decay that moves the weights more than the gradient does, in a run that does badly."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis import weight_decay
from gradstudio.core.diagnosis.progress import WINDOW, Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class WeightDecayHigh(PeriodicRule):
    """Fires if the norm of the weights fell below `left` of its value within `window` steps, or the decay of a step
    removes more than all of the weights, while the decay was larger than the gradient in most of these steps.

    Usual decays remove 1e-6 to 1e-3 of the weights at a step, and so half of them in 700 steps or more: one epoch or
    longer (Wang and Aitchison 2024). The norm comes to rest where updates add what the decay takes, which for AdamW is
    in proportion to sqrt(lr / weight_decay) (Kosson 2023)."""

    rule = "weight_decay_high"
    left: float = weight_decay.LEFT
    window: int = weight_decay.WINDOW
    large: float = 0.05  # share of the weights per step above which a note is made
    after: int = 50  # steps before that

    _first: int | None = None  # the first step at which the decay was larger

    def look(self, history: History, state: Progress) -> None:
        if not any(settings.weight_decay for _, settings in history.settings):
            return
        if self._first is None:
            self._first = weight_decay.fall(history, len(history), self.left, self.window)
        if self._first is None:
            self._tell_of_share(history, state)
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

    def _tell_of_share(self, history: History, state: Progress) -> None:
        """Report a decay that removes a large share of the weights at each step, whatever the gradient adds back."""
        last = len(history) - 1
        share = weight_decay.decayed_share(history, last) or 0.0
        if share < self.large or len(history) < self.after:
            self.soften(False)
            return
        self.tell(
            history, "info", "Weight decay takes much of the weights",
            f"At step {last:,} weight decay took {number(share)} of the weights away (lr × weight_decay). The median "
                f"loss of the latest {min(WINDOW, len(history))} steps is {number(state.recent)}.",
            f"A usual decay takes 1e-6 to 1e-3 at a step. This one takes half of a weight in about "
                f"{number(math.log(2) / share)} steps, so the loss can keep only what it restores as fast.",
            weight_decay.lower(history, last),
        )  # fmt: skip
