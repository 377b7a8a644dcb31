"""Diagnosis: one file a symptom. A rule reads a History and nothing else, step by step, and says what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:  # presets need the names of the rules, and not numpy
    from gradstudio.core.history import History

Severity = Literal["critical", "warning", "info"]
RANK: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


@dataclass(frozen=True)
class Finding:
    """What a rule found: since when, where, the evidence in figures, what it means, and knob changes that may heal it."""

    rule: str
    severity: Severity
    title: str
    first_step: int
    last_step: int
    layers: tuple[str, ...]
    evidence: str
    meaning: str
    remedies: tuple[str, ...]

    def until(self, step: int) -> Finding:
        """The same, still there at `step`. Rules say so at every step, and `dataclasses.replace` takes three times as long."""
        return Finding(
            self.rule, self.severity, self.title, self.first_step, step, self.layers, self.evidence, self.meaning, self.remedies
        )  # fmt: skip

    @property
    def when(self) -> str:
        """'step 41', or 'steps 41–60'."""
        return f"step {self.first_step:,}" if self.first_step == self.last_step else f"steps {self.first_step:,}–{self.last_step:,}"


NAMES = ("nonfinite_loss", "nonfinite_gradient", "exploding_gradient", "vanishing_gradient", "loop_order")


class Rule(Protocol):
    """Reads the rows that came since its last call; gives its finding as it now stands, or None. It is asked at every step, so it
    may take some microseconds."""

    def update(self, history: History) -> Finding | None: ...


def all_rules() -> list[Rule]:
    """A fresh set of every rule, in the order of their weight."""
    from gradstudio.core.rules.exploding_gradient import ExplodingGradient
    from gradstudio.core.rules.loop_order import LoopOrder
    from gradstudio.core.rules.nonfinite import NonfiniteGradient, NonfiniteLoss
    from gradstudio.core.rules.vanishing_gradient import VanishingGradient

    makers: tuple[Callable[[], Rule], ...] = (NonfiniteLoss, NonfiniteGradient, ExplodingGradient, VanishingGradient, LoopOrder)
    return [make() for make in makers]
