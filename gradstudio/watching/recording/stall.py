"""A step of a watched script that does not end."""

from __future__ import annotations

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.text import number
from gradstudio.session.record.run import Run
from gradstudio.session.running.slow_step import TIMES, longest_step

STALLED = 60.0  # seconds without a step, at least, that are worth a message


def stall_of(run: Run, seconds: float) -> Finding | None:
    """Return the message about a run that has made no step for this many seconds; None if that is usual for it."""
    if run.status != "running" or not run.own or seconds <= max(STALLED, TIMES * longest_step(run)):
        return None
    step = len(run.history) - 1
    evidence = f"The longest of the latest steps took {number(longest_step(run))} s."
    meaning = "The script evaluates or saves, waits for data or for another process, or hangs."
    return Finding("stalled", "warning", f"No step for {seconds:,.0f} s", step, step, (), evidence, meaning, ())
