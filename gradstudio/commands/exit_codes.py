"""The exit codes of the commands, and their meanings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradstudio.session.running import interrupts

if TYPE_CHECKING:
    from gradstudio.session.record.run import Run

FINISHED, FAILED, WRONG_REQUEST, DIVERGED, CRITICAL = range(5)
INTERRUPTED = interrupts.EXIT_CODE
MEANINGS = {
    FINISHED: "finished",
    FAILED: "an error ended it, or its files could not be written at its end; the message is on stderr",
    WRONG_REQUEST: "the request was wrong; one line on stderr says what, and what is allowed",
    DIVERGED: "the run diverged: the loss or the weights are no longer finite",
    CRITICAL: "a finding is critical, though the loss stayed finite",
    INTERRUPTED: "interrupted, as a shell says it of Ctrl+C; what was measured is saved",
}


def of_run(run: Run) -> int:
    """Return the exit code of the command that trained a run: 0 if training was healthy, so that it can guard a CI
    job."""
    if run.status == "failed":
        return WRONG_REQUEST if run.refused else FAILED
    if run.status == "nonfinite":
        return DIVERGED
    if run.status != "finished":
        return INTERRUPTED
    return CRITICAL if any(finding.severity == "critical" for finding in run.findings.values()) else FINISHED
