"""Training of whole runs that are then judged."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradstudio.session.record.run import Run


def train_whole(run: Run) -> None:
    """Train a run to its end, with progress on a terminal. KeyboardInterrupt if it was stopped before."""
    from gradstudio.session.course.questions import ENDED
    from gradstudio.session.running import foreground

    foreground.train(run, progress=sys.stderr.isatty())
    if run.status not in ENDED:
        raise KeyboardInterrupt
