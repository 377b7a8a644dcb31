"""Events of a run and changes of its knobs: everything that happens besides the rows of its steps."""

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


MOST_CHANGES = 10_000  # per run: keeps the file below the size limit for reading, and its check within about a second


@dataclass(frozen=True, slots=True)
class Event:
    """An event at `step`. `knob`, `before` and `value` are set only if a knob changed; `value` is also set if the
    learning rate was multiplied by a factor, and for a "nan_batch" that covers several batches."""

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
