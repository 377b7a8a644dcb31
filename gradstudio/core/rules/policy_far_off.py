"""A policy that has gone far from the one that drew its batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class PolicyFarOff(PeriodicRule):
    """Fires in a run that fails or struggles where an action became more than `ratio` times as probable as it was when
    it was drawn, and the mean KL divergence from the policy that drew the batch was above `divergence`, both within 20
    of the latest `window` steps. Schulman 2017 clips the ratio at 1.2."""

    rule = "policy_far_off"
    ratio: float = 10.0
    divergence: float = 1.0
    window: int = 1000

    _seen: int = 0  # rows
    _far: tuple[int, float, float] = (-1, 0.0, 0.0)  # latest step that was seen to be far off; largest ratio and KL

    def look(self, history: History, state: Progress) -> None:
        steps, ratios = history.measurements("policy_ratio", self._seen)
        divergences = history.measurements("policy_kl", self._seen)[1]
        self._seen = len(history)
        ratios, divergences = (values[~np.isnan(values)] for values in (ratios, divergences))
        if len(ratios) and len(divergences) and ratios.max() > self.ratio and divergences.max() > self.divergence:
            _, ratio, divergence = self._far
            self._far = int(steps[-1]), max(ratio, float(ratios.max())), max(divergence, float(divergences.max()))
        step, ratio, divergence = self._far
        far, badly = step >= max(len(history) - self.window, 0), state.failing or state.struggling
        if not far or not badly:
            self.soften(badly)
            return
        self.tell(
            history, "critical" if state.failing else "warning", "The policy runs far from the one that acted",
            f"Up to step {step:,} an action became {number(ratio)} times as probable as when it was drawn, and the KL "
            f"divergence from the policy that drew it reached {number(divergence)}.",
            "After the first pass over a batch its actions are those of an older policy. What they were worth says "
            "little of one so far from it. Where nothing limits the ratio, the loss pays for going on all the same.",
            ("loss.ratio_limit=0.1", "problem.passes=1"),
        )  # fmt: skip
