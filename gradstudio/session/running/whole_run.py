"""Training a run from start to end in this thread, without changes of its knobs."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.run_driver import RunDriver


def train_whole(run: Run, stopped: Callable[[], bool]) -> None:
    """Train a run to its end, or until it is stopped."""
    driver = RunDriver(run, Snapshots())
    try:
        driver.begin(None, stopped)
        driver.train()
    finally:
        driver.end(leaving=stopped())
