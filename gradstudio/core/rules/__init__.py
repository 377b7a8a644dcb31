"""Diagnosis: one file a symptom. A rule reads a History and nothing else, step by step, and says what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

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
    explains: tuple[str, ...] = ()  # rules whose findings are its symptoms: see causes.py

    def until(self, step: int) -> Finding:
        """The same, still there at `step`. Rules say so at every step, and `dataclasses.replace` takes three times as long."""
        return Finding(
            self.rule, self.severity, self.title, self.first_step, step, self.layers, self.evidence, self.meaning, self.remedies, self.explains
        )  # fmt: skip

    @property
    def when(self) -> str:
        """'step 41', or 'steps 41–60'."""
        return f"step {self.first_step:,}" if self.first_step == self.last_step else f"steps {self.first_step:,}–{self.last_step:,}"


# In the order of DESIGN.md section 6.
NAMES = (
    "nonfinite_loss", "nonfinite_gradient", "exploding_gradient", "vanishing_gradient", "loss_not_decreasing", "loss_oscillating", "loss_spike",
    "dead_units", "saturated_activation", "update_ratio_high", "update_ratio_low", "poor_initialization", "clipping_always", "clipping_never",
    "fp16_underflow", "fp16_overflow", "scale_collapse", "accumulation_mismatch", "clip_without_effect", "clip_on_scaled_gradients", "loop_order",
)  # fmt: skip


class Rule(Protocol):
    """Reads the rows that came since its last call; gives its finding as it now stands, or None. It may be asked at every step, and has to
    be where `every_row` is set, or where the history says that a look is due or that its latest row is broken."""

    rule: ClassVar[str]
    every_row: ClassVar[bool]

    def update(self, history: History) -> Finding | None: ...


def all_rules() -> list[Rule]:
    """A fresh set of every rule, with the thresholds that the user has set."""
    from gradstudio.core.rules import settings

    return settings.make(settings.read())
