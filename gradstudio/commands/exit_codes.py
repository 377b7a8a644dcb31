"""The exit codes of the commands. The README has the same table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradstudio.session.running import interrupts

if TYPE_CHECKING:
    from gradstudio.session.record.run import Run

FINISHED = 0
FAILED = 1  # an error ended it, or its files could not be written at its end; the message is on stderr
WRONG_REQUEST = 2  # one line on stderr says what was wrong, and what is allowed
DIVERGED = 3  # the loss or the weights are no longer finite
CRITICAL = 4  # a finding is critical, though the loss stayed finite
INTERRUPTED = interrupts.EXIT_CODE  # 130, as a shell says it of Ctrl+C; what was measured is saved


def of_run(run: Run) -> int:
    """Return the exit code of the command that trained a run: 0 where training was healthy, so that it can guard a CI
    job."""
    if run.status == "failed":
        return WRONG_REQUEST if run.refused else FAILED
    if run.status == "nonfinite":
        return DIVERGED
    if run.status != "finished":
        return INTERRUPTED
    return CRITICAL if any(finding.severity == "critical" for finding in run.findings.values()) else FINISHED
