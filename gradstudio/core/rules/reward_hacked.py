"""A reward that rises while what it stands for falls."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number, percent


@dataclass
class RewardHacked(PeriodicRule):
    """Fires where the mean accuracy of the latest `window` steps is more than `fall` below the best such mean, and the
    mean reward is higher than it was then by more than `rise` of it (Goodhart's law; Gao 2023)."""

    rule = "reward_hacked"
    fall: float = 0.15
    rise: float = 0.05
    window: int = 50

    def look(self, history: History, state: Progress) -> None:
        best = state.best_step
        if not state.best_accuracy - state.accuracy > self.fall or best < self.window:
            self.soften(False)
            return
        then = history.measurements("policy_reward", best - self.window, best)[1]
        now = history.measurements("policy_reward", len(history) - self.window)[1]
        if not len(then) or not now.mean() - then.mean() > self.rise * abs(then.mean()):
            self.soften(False)
            return
        self.tell(
            history, "critical" if state.failing else "warning", "The reward is hacked",
            f"Up to step {best - 1:,} the mean reward was {number(then.mean())} and {percent(state.best_accuracy)} was "
            f"right; up to step {len(history) - 1:,} the reward is {number(now.mean())} and {percent(state.accuracy)} "
            "is right.",
            "The reward pays for something else than what is wanted, and the policy has found it. It does what it is "
            "paid for: training on only makes that worse.",
            ("problem.reward_flaw=0",), first=best,
        )  # fmt: skip
