"""Training the runs of an exam to their end, beside the window and beside a paused run in it."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.gui.services.jobs import Task
from gradstudio.session.record.run import Run
from gradstudio.session.simulator import Simulator


def train_for(simulator: Simulator, run: Run, task: Task) -> Run:
    """Train a run for a task; it raises Cancelled."""
    simulator.train_beside(run, lambda: task.cancelled)
    task.check()
    return run


def of_task(simulator: Simulator, task: Task) -> Callable[[Run], None]:
    """Return a function that trains runs for a task, as making and grading an exam need it."""

    def train(run: Run) -> None:
        train_for(simulator, run, task)

    return train
