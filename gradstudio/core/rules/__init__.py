"""Diagnosis: one file a symptom. A rule reads a History and nothing else, step by step, and says what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from gradstudio.core.history import History

Severity = Literal["critical", "warning", "info"]


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


class Rule(Protocol):
    """Reads the rows that came since its last call; gives its finding as it now stands, or None."""

    def update(self, history: History) -> Finding | None: ...


def all_rules() -> list[Rule]:
    """A fresh set of every rule, in the order of their weight."""
    from gradstudio.core.rules.exploding_gradient import ExplodingGradient
    from gradstudio.core.rules.nonfinite import NonfiniteGradient, NonfiniteLoss
    from gradstudio.core.rules.vanishing_gradient import VanishingGradient

    makers: tuple[Callable[[], Rule], ...] = (NonfiniteLoss, NonfiniteGradient, ExplodingGradient, VanishingGradient)
    return [make() for make in makers]
