"""What can happen to a run, apart from the rows that every step adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradstudio.core.knobs import Value

Kind = Literal[
    "started",
    "branched",
    "resumed",
    "knob_changed",
    "knob_refused",
    "loop",
    "step_skipped",
    "outlier",
    "compared",
    "nonfinite",
    "finding",
    "finished",
    "stopped",
    "failed",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `step`; `knob`, `before` and `value` only where a knob changed."""

    step: int
    kind: Kind
    text: str
    knob: str = ""
    before: Value | None = None
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A live change of a knob: in force from `step` on."""

    step: int
    knob: str
    value: Value
