"""Training runs to their end in a thread beside the window, as making and grading an exam do."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Stop, Worker

LOOK = 0.05  # seconds between two looks whether a person has cancelled it


def train(run: Run, cancelled: Callable[[], bool]) -> None:
    """Train a run to its end, or as far as it is when it is cancelled."""
    worker = Worker(run)
    worker.start()
    while worker.is_alive():
        if cancelled():
            worker.send(Stop(leaving=True))
        worker.join(LOOK)
