"""The progress of a map that is being made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a map. Runs are counted, one for each cell and seed. The total of an adaptive map is unknown
    until its end, so the time left is that of the current level alone; None while too few cells are known."""

    level: int = 0  # from 1; 0 before the first
    done: int = 0  # of this level
    of: int = 0
    run: int = 0  # of all levels
    failed: int = 0
    seconds_left: float | None = None
