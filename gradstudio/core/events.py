"""Events of a run, and changes of its knobs: everything that happens beside the rows of its steps."""

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
    "nan_batch",
    "compared",
    "nonfinite",
    "finding",
    "notice",
    "finished",
    "stopped",
    "failed",
]


MOST_CHANGES = 10_000  # of a run: their file stays below the size that is read, and is checked in about a second


@dataclass(frozen=True, slots=True)
class Event:
    """An event at `step`; `knob`, `before` and `value` are set only where a knob changed; `value` also
    where the learning rate got a factor, and how many batches a "nan_batch" is about, where it is several."""

    step: int
    kind: Kind
    text: str
    knob: str = ""
    before: Value | None = None
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A live change of a knob, in force from `step` on."""

    step: int
    knob: str
    value: Value
