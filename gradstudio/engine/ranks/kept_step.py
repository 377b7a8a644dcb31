"""The state of its latest steps that a rank keeps, to repeat one of them alone (`rank_replay.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gradstudio.engine.snapshot import Snapshot

KEPT = 2  # steps: the latest, and the one whose update may have broken its weights


@dataclass
class KeptStep:
    """The state before a step, and the gradient from the passes of all ranks, once they were made."""

    before: Snapshot
    gradient: Tensor | None = None
