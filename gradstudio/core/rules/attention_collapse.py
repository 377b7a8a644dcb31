"""Attention that looks at a single time step, with logits so large that hardly any gradient passes its softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.suggested_rate import lower
from gradstudio.core.history import History
from gradstudio.core.rules.rate_raised import RateRaised
from gradstudio.core.text import number, percent


@dataclass
class AttentionCollapse(PeriodicRule):
    """Fires in a run that fails, or that struggles and is hardly better than guessing, if the largest logit of an
    attention is above `logit` and the mean entropy of its sharpest below `entropy` of its maximum, at `looks` looks in
    a row. Zhai 2023 calls it entropy collapse; Kimi K2 (2025) clips at 100. A sharp attention alone is no fault: one
    that copies looks at one time step too."""

    rule = "attention_collapse"
    logit: float = 100.0
    entropy: float = 0.1
    looks: int = 2
    above: float = 0.1  # accuracy beyond guessing above which a run has learned something

    _seen: int = 0  # rows
    _first: int = -1  # of the looks in a row
    _row: int = 0  # how many these are

    def look(self, history: History, state: Progress) -> None:
        steps, logits = history.measurements("attention_logit", self._seen)
        entropies = history.measurements("attention_entropy", self._seen)[1]
        self._seen = len(history)
        for step, logit, entropy in zip(steps.tolist(), logits, entropies, strict=True):
            if logit > self.logit and entropy < self.entropy:
                self._first, self._row = (self._first if self._row else step), self._row + 1
            elif not np.isnan(logit):
                self._row = 0
        above = state.above_guessing(state.accuracy, state.guess)
        little = not (state.accuracy >= state.promised and above > self.above)
        badly = state.failing or (state.struggling and little)
        if self._row < self.looks or not badly:
            self.soften(badly and self._row > 0)
            return
        if not len(steps):
            return
        rates = history.column("lr", 0, max(self._first, 1))
        raised = np.flatnonzero(rates[1:] > RateRaised.times * rates[:-1]) + 1
        raised = raised[raised >= RateRaised.least]
        before = float(rates[raised[-1] - 1]) if len(raised) else 0.0
        rise, rate = "", lower(history, rates.max())[:1]  # a warmup begins with a lower one
        if before:
            rate = (f"optimizer.lr={before:.3g}",)
            after = number(float(rates[raised[-1]]))
            rise = f" The learning rate rose from {number(before)} to {after} at step {raised[-1]:,}, before that."
        self.tell(
            history, "critical" if state.failing else "warning", "Attention has collapsed",
            f"At step {steps[-1]:,} the largest logit of an attention is {number(logits[-1])}, and the sharpest has "
            f"{percent(entropies[-1])} of the entropy that it can have.{rise}",
            "The softmax of such logits is 1 for one time step and 0 for all others, and its slope is 0 there: the "
            "queries and keys get hardly any gradient, and stay as they are. Updates that were too large made them "
            "grow.",
            (*rate, "model.qk_norm=true", "clipping.qk_clip=10"), first=self._first,
        )  # fmt: skip
