"""A policy that is sure of its actions before it has learned which are right."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import percent


@dataclass
class EntropyCollapse(PeriodicRule):
    """Fires in a run that fails or struggles where the mean entropy of its policy in the latest `window` steps is below
    `entropy` of the most that it can be (Mnih 2016 adds the entropy to the loss; DAPO, 2025). A policy that does well
    may be sure."""

    rule = "entropy_collapse"
    entropy: float = 0.05
    window: int = 50

    def look(self, history: History, state: Progress) -> None:
        steps, entropies = history.measurements("policy_entropy", max(len(history) - self.window, 0))
        if len(steps) < self.window:
            return
        badly, sure = state.failing or state.struggling, bool(entropies.mean() < self.entropy)
        if not sure or not badly:
            self.soften(badly and sure)
            return
        self.tell(
            history, "critical" if state.failing else "warning", "The policy is sure too soon",
            f"In the {len(steps)} steps up to step {steps[-1]:,} its mean entropy is {percent(entropies.mean())} of "
            f"the most that it can be, and its accuracy is {percent(state.accuracy)}.",
            "An action that is hardly ever drawn is hardly ever paid for, so that the policy cannot find out that it "
            "would be better. It has stopped trying.",
            ("loss.entropy_bonus=0.1",),
        )  # fmt: skip
