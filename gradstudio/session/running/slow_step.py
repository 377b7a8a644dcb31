"""Whether the current step of a run takes far longer than its steps so far. It may be a step that never ends."""

from __future__ import annotations

import time

import numpy as np

from gradstudio.core.history import LOOK_EVERY
from gradstudio.session.record.run import Run

TELLS_AFTER = 5.0  # seconds of a step that are worth a message
TIMES = 10  # as long as the longest of the steps before: steps of a large model differ by less


def slow_step(run: Run, least: float = TELLS_AFTER) -> float | None:
    """Return how many seconds the current step has taken, if that exceeds both `least` and TIMES the longest of the
    LOOK_EVERY steps before it; otherwise None. For a run that another program trains it is the time since its latest
    row was seen."""
    if run.step_now is None or run.status != "running":
        return None
    seconds = time.monotonic() - run.step_now[1]
    return seconds if seconds > max(least, TIMES * longest_step(run)) else None


def longest_step(run: Run) -> float:
    """Return the seconds of the longest of the LOOK_EVERY latest rows; 0 if there is none. A row of a watched script
    may represent several steps."""
    taken = run.history.column("step_seconds", len(run.history) - LOOK_EVERY)
    taken = taken[np.isfinite(taken)]
    return float(taken.max()) * (run.watched.every if run.watched else 1) if len(taken) else 0.0
