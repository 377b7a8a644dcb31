"""A reward that was higher before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class RewardLost(PeriodicRule):
    """Fires if the mean of the latest `window` rewards that a script logs has fallen below the best such mean by more
    than `share` of the gain since the first one, and by more than `scatter` standard errors. The thresholds are our
    own."""

    rule = "reward_lost"
    window: int = 10
    share: float = 0.5
    scatter: float = 4.0

    _seen: int = 0  # notes

    def look(self, history: History, state: Progress) -> None:
        if len(history.logged) == self._seen:
            return
        self._seen = len(history.logged)
        steps, told = history.logged_as("reward")
        rewards = np.array(told)
        if len(rewards) < 2 * self.window or not np.isfinite(rewards).all():
            return
        means = np.convolve(rewards, np.full(self.window, 1 / self.window), "valid")
        best, now, first = int(means.argmax()), float(means[-1]), float(means[0])
        peak = float(means[best])
        error = float(rewards[-self.window :].std()) / math.sqrt(self.window)
        if peak - now <= max(self.share * (peak - first), self.scatter * error):
            self.soften(False)
            return
        at = steps[best + self.window - 1]
        kl_steps, divergences = history.logged_as("kl")
        kl = f" The KL was {number(divergences[-1])} at step {kl_steps[-1]:,}." if divergences else ""
        self.tell(
            history, "critical" if now <= first else "warning", "The reward collapses",
            f"The mean of {self.window} rewards was {number(peak)} up to step {at:,}, and is {number(now)} up to step "
                f"{steps[-1]:,}; at first it was {number(first)}.{kl}",
            "The policy has lost what it had learned. Its weights of that step were better; smaller steps or a "
                "stronger pull to the reference keep a policy closer to what it knew.",
            ("clipping.kind=norm",), first=None if self._finding else min(at, len(history) - 1),
        )  # fmt: skip
